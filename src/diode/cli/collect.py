"""The commands that measure: collect, collect-shapeset, create-validation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar, cast

import typer

from diode.cli.console import err, out
from diode.cli.durations import duration, parse_duration
from diode.cli.tables import print_statistics
from diode.collection.networks import NetworkSampler
from diode.collection.samplers import (
    DistributionSampler,
    FamilySampler,
    LogNormalSampler,
    PowerOfTwoSampler,
    ProblemMix,
    Sampler,
    UniformSampler,
)
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.collection.sweep import SweepSettings
from diode.errors import UsageError
from diode.storage import read_dataset, read_shapeset, statistics
from diode.types import MMShape

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
Ops: TypeAlias = Annotated[str, typer.Option(help="Ops that are drawn, as in mm,addmm,bmm.")]
Dtypes: TypeAlias = Annotated[
    str, typer.Option(help="Precisions that are drawn, as in bfloat16,float16,float32,tf32; empty: the usual mix.")
]
Layouts: TypeAlias = Annotated[
    str, typer.Option(help="Layouts of A and B that are drawn, as in NT,NN; empty: the usual mix.")
]


def collect(
    context: typer.Context,
    output: Output,
    num_shapes: NumShapes = 100,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    log_normal: LogNormal = False,
    sampler: SamplerOption = None,
    group: Group = 1,
    ops: Ops = "mm,addmm,bmm",
    dtypes: Dtypes = "",
    layouts: Layouts = "",
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: Confirm = False,
    processes: Processes = None,
) -> None:
    """Draw problems, and measure the choices that Inductor would try for each."""
    drawn = _sampler(context.obj.seed, log_normal, sampler, group, _mix(ops, dtypes, layouts)).sample(num_shapes)
    settings = _settings(
        context.obj.seed, search_space, choices, choices_from, kernels, shared=share_choices, confirm=confirm
    )
    _run(context, drawn, settings, output, device, budget, processes)


def collect_shapeset(
    context: typer.Context,
    shapeset: Annotated[Path, typer.Option(help="A JSON file that lists problems.")],
    output: Output,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: Confirm = False,
    processes: Processes = None,
) -> None:
    """Measure the choices of the problems that a shapeset lists."""
    problems = tuple(dict.fromkeys(read_shapeset(shapeset)))
    if not problems:
        raise UsageError(f"{shapeset}: lists no problem")
    settings = _settings(
        context.obj.seed, search_space, choices, choices_from, kernels, shared=share_choices, confirm=confirm
    )
    _run(context, problems, settings, output, device, budget, processes)


def create_validation(
    context: typer.Context,
    output: Output,
    num_shapes: NumShapes = 30,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    log_normal: LogNormal = False,
    sampler: SamplerOption = None,
    group: Group = 1,
    ops: Ops = "mm,addmm,bmm",
    dtypes: Dtypes = "",
    layouts: Layouts = "",
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: Confirm = True,
    processes: Processes = None,
) -> None:
    """Measure a data set to validate with: as collect, but whole spaces, and near-winners timed a second time.

    Give another --seed than for training, or the problems will be the same.
    """
    collect(
        context,
        output,
        num_shapes,
        search_space,
        search_mode,
        log_normal,
        sampler,
        group,
        ops,
        dtypes,
        layouts,
        choices,
        share_choices,
        choices_from,
        device,
        budget,
        kernels,
        confirm,
        processes,
    )


def _run(
    context: typer.Context,
    problems: tuple[MMShape, ...],
    settings: SweepSettings,
    output: Path,
    device: str | None,
    budget: str | None,
    processes: int | None,
) -> None:
    from diode.cli.progress import CollectionDisplay
    from diode.collection.run import CollectionPlan, run_collection

    budget_seconds = None if budget is None else parse_duration(budget)
    plan = CollectionPlan(
        problems=problems,
        output=output,
        settings=settings,
        format=context.obj.format,
        device=device or _device_at_hand(),
        budget_seconds=budget_seconds,
        compile_processes=processes,
        command=shlex.join(["diode", *sys.argv[1:]]),
    )
    with CollectionDisplay(err, budget_seconds) as display:
        result = run_collection(plan, display)
    for reason in result.progress.broken:
        err.print(f"not measured: {reason}", markup=False)
    print_statistics(out, statistics(result.dataset))
    rate = result.progress.measurements / result.seconds
    out.print(
        f"{output}: {len(result.dataset)} measurements, {result.progress.measurements} of them new, "
        f"in {duration(result.seconds)} ({rate:.3g} a second)",
        markup=False,
    )
    if not result.complete:
        left = result.progress.problems - result.progress.problems_done
        err.print(f"stopped with {left} problems left: run the same command again to go on", markup=False)


def _device_at_hand() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _sampler(seed: int, log_normal: bool, name: SamplerName | None, group: int, mix: ProblemMix) -> Sampler:
    if log_normal and name not in (None, SamplerName.log_normal):
        raise UsageError(f"--log-normal contradicts --sampler {name.value if name else ''}: give one of them")
    name = name or SamplerName.log_normal
    if name is SamplerName.networks:
        return NetworkSampler(seed)
    base = _SAMPLERS[name](seed, mix)
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


def _settings(
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
