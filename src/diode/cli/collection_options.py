"""What is said to the commands that measure, and what it means: problems, choices, how they are timed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar, cast

import typer

from diode.collection.networks import NetworkSampler
from diode.collection.samplers import (
    DistributionSampler,
    FamilySampler,
    LogNormalSampler,
    PowerOfTwoSampler,
    ProblemLimits,
    ProblemMix,
    Sampler,
    UniformSampler,
)
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.collection.sweep import SweepSettings
from diode.errors import UsageError
from diode.storage import read_dataset

Key = TypeVar("Key", bound=str)


class SearchSpaceName(str, Enum):
    EXHAUSTIVE = "EXHAUSTIVE"
    DEFAULT = "DEFAULT"


class SearchMode(str, Enum):
    max_autotune = "max-autotune"


class SamplerName(str, Enum):
    log_normal = "log-normal"
    uniform = "uniform"
    power_of_two = "power-of-two"
    networks = "networks"


class KernelFormName(str, Enum):
    family = "family"
    static = "static"


_SAMPLERS: dict[SamplerName, type[DistributionSampler]] = {
    SamplerName.log_normal: LogNormalSampler,
    SamplerName.uniform: UniformSampler,
    SamplerName.power_of_two: PowerOfTwoSampler,
}

Output: TypeAlias = Annotated[Path, typer.Option(help="Where the data set goes: .parquet, .msgpack or .json.")]
Space: TypeAlias = Annotated[SearchSpaceName, typer.Option(help="Whose choices are measured.")]
Mode: TypeAlias = Annotated[SearchMode, typer.Option(help="The mode of torch.compile that is measured for.")]
Choices: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Measure a random sample of so many choices per problem, not all of them.")
]
ShareChoices: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--share-choices", help="Measure what --choices draws for one problem for all that share its kernels, too."
    ),
]
ChoicesFrom: TypeAlias = Annotated[
    Path | None, typer.Option(help="Measure only configs that stand in this data set, beside the library's kernels.")
]
Device: TypeAlias = Annotated[
    str | None, typer.Option(help="cuda (all GPUs), cuda:0,1 or cpu; by default cuda where there is one.")
]
Budget: TypeAlias = Annotated[
    str | None, typer.Option(help="Stop after so long, as in 90s, 10m, 1h30m; the next run goes on from there.")
]
Kernels: TypeAlias = Annotated[
    KernelFormName,
    typer.Option(help="family: one compiled kernel serves many sizes; static: each as Inductor would compile it."),
]
Confirm: TypeAlias = Annotated[
    bool, typer.Option("--confirm", help="Time near-winners again, as static kernels, in a second round.")
]
ConfirmOrNot: TypeAlias = Annotated[
    bool,
    typer.Option("--confirm/--no-confirm", help="Time near-winners again, as static kernels, in a second round."),
]
Processes: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="How many processes compile; by default one per core.")
]
NumShapes: TypeAlias = Annotated[int, typer.Option(min=1, help="How many problems are drawn.")]
LogNormal: TypeAlias = Annotated[bool, typer.Option("--log-normal", help="Same as --sampler log-normal.")]
SamplerOption: TypeAlias = Annotated[
    SamplerName | None, typer.Option(help="How sizes are drawn; log-normal unless named.")
]
Group: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Draw so many problems that share all but M and N, and so share compiled kernels.")
]
Ops: TypeAlias = Annotated[str, typer.Option(help="Ops that are drawn, as in mm,baddbmm; empty: mm, addmm and bmm.")]
Dtypes: TypeAlias = Annotated[
    str, typer.Option(help="Precisions that are drawn, as in bfloat16,float16,float32,tf32; empty: the usual mix.")
]
Layouts: TypeAlias = Annotated[
    str, typer.Option(help="Layouts of A and B that are drawn, as in NT,NN; empty: the usual mix.")
]
MaxGflop: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Draw no problem of more than so many billion operations, as for a CPU; float32 counts more."),
]


def sampler_of(
    seed: int,
    log_normal: bool,
    name: SamplerName | None,
    group: int = 1,
    ops: str = "",
    dtypes: str = "",
    layouts: str = "",
    max_gflop: float | None = None,
) -> Sampler:
    if log_normal and name not in (None, SamplerName.log_normal):
        raise UsageError(f"--log-normal contradicts --sampler {name.value if name else ''}: give one of them")
    name = name or SamplerName.log_normal
    limits = ProblemLimits() if max_gflop is None else ProblemLimits(max_flops=max_gflop * 1e9)
    if name is SamplerName.networks:
        if group != 1 or ops or dtypes or layouts:
            raise UsageError(
                "--sampler networks draws GEMMs as networks have them: leave out --group, --ops, --dtypes and --layouts"
            )
        return NetworkSampler(seed, limits=limits)
    base = _SAMPLERS[name](seed, _mix(ops, dtypes, layouts), limits)
    return base if group == 1 else FamilySampler(base, group)


def _mix(ops: str, dtypes: str, layouts: str) -> ProblemMix:
    usual = ProblemMix()
    return ProblemMix(_weights(ops, usual.ops), _weights(layouts, usual.layouts), _weights(dtypes, usual.precisions))


def _weights(names: str, usual: Mapping[Key, float]) -> dict[Key, float]:
    """The usual weights of the names given; one that usually is not drawn weighs as much as the least usual one."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    least = min(usual.values())
    weights = {name: cast(Mapping[str, float], usual).get(name, least) for name in wanted}
    return cast(dict[Key, float], weights) or dict(usual)  # ProblemMix refuses names that it does not know


def settings_of(
    seed: int,
    space: SearchSpaceName,
    choices: int | None,
    choices_from: Path | None,
    kernels: KernelFormName,
    *,
    shared: bool,
    confirm: bool,
) -> SweepSettings:
    if choices is not None and choices_from is not None:
        raise UsageError("--choices draws a sample and --choices-from names the configs: give one of them")
    if shared and choices is None:
        raise UsageError("--share-choices goes with --choices")
    sample: ChoiceSample | ChoiceList | None = None
    if choices is not None:
        sample = ChoiceSample(choices, seed, shared=shared)
    elif choices_from is not None:
        sample = ChoiceList.of(read_dataset(choices_from).choices)
    return SweepSettings(space=space.value, sample=sample, form=kernels.value, confirm=confirm)
