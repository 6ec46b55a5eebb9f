"""Turns a problem into what is to be compiled and timed. Runs in any process; needs Inductor, not a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from diode.collection.kernels.compiler import CompileTarget, kernel_key
from diode.collection.kernels.pattern import KernelPattern, KernelSource, family_sizes, pattern_example, resized
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.errors import UnsupportedError
from diode.types import (
    AtenChoice,
    Choice,
    DecomposeKConfig,
    Failure,
    Hardware,
    MMShape,
    PersistentTMAConfig,
    SearchSpace,
    TiledConfig,
    TritonGEMMConfig,
)
from diode.types.dtypes import item_bytes

KernelForm = Literal["static", "family"]

_LARGEST: Final = 4096
"""M and N of a problem for which Inductor leaves out no size of block."""
_LARGEST_INDEX: Final = 2**31 - 1
"""Beyond it Inductor's kernels compute addresses in 64 bits: other kernels than the patterns know."""
_LARGEST_GRID_Y: Final = 65535


@dataclass(frozen=True)
class PlannedKernel:
    """A Triton kernel to be compiled, and how to launch it for one problem."""

    key: str
    source: KernelSource
    grid: tuple[int, int, int]
    sizes: tuple[int, ...]
    """Trailing integer arguments: M and N in the units of a family's kernel, and its batch."""


@dataclass(frozen=True)
class PlannedChoice:
    """`kernel` is None for what PyTorch itself runs."""

    choice: Choice
    kernel: PlannedKernel | None


@dataclass
class PlannedProblem:
    """What is to be timed for one problem, and what is known to fail before anything is compiled."""

    problem: MMShape
    choices: list[PlannedChoice] = field(default_factory=list)
    failed: list[tuple[Choice, Failure]] = field(default_factory=list)


@dataclass(frozen=True)
class PlanRequest:
    """One problem with the way its choices are taken: all of `space`, a sample of it, or a given list."""

    problem: MMShape
    hardware: Hardware
    space: SearchSpace = "EXHAUSTIVE"
    sample: ChoiceSample | ChoiceList | None = None
    only: tuple[Choice, ...] | None = None
    with_default_space: bool = False
    """Whether the DEFAULT space's choices join those of `only`."""
    form: KernelForm = "family"


class Planner:
    """Remembers the kernel patterns it has learned."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[object, ...], KernelPattern] = {}
        self._family_samples: dict[tuple[object, ...], frozenset[TiledConfig]] = {}

    def plan(self, request: PlanRequest) -> PlannedProblem:
        problem, hardware = request.problem, request.hardware
        if max(problem.matrix_elements) > _LARGEST_INDEX:
            raise UnsupportedError(f"{problem}: a matrix of more than {_LARGEST_INDEX} elements needs 64-bit addresses")
        choices = self._choices(request)
        planned = PlannedProblem(problem)
        target = CompileTarget.of(hardware)
        for choice in choices:
            if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig):
                failure = surely_illegal(problem, choice, hardware)
                if failure is not None:
                    planned.failed.append((choice, failure))
                    continue
                pattern = self.pattern(problem, choice, hardware)
                source = (
                    pattern.family(problem, choice) if request.form == "family" else pattern.static(problem, choice)
                )
                kernel = PlannedKernel(
                    key=kernel_key(source, target),
                    source=source,
                    grid=launch_grid(problem, choice),
                    sizes=family_sizes(problem) if request.form == "family" else (),
                )
                planned.choices.append(PlannedChoice(choice, kernel))
            elif isinstance(choice, AtenChoice | DecomposeKConfig):
                planned.choices.append(PlannedChoice(choice, None))
        return planned

    def _choices(self, request: PlanRequest) -> list[Choice]:
        if request.only is not None:
            default = self._generated(request, "DEFAULT") if request.with_default_space else []
            return list(dict.fromkeys([*request.only, *default]))
        choices = self._generated(request, request.space)
        sample = request.sample
        if sample is None:
            return choices
        if isinstance(sample, ChoiceSample) and sample.shared:
            drawn = self._drawn_for_family(request, sample)
            return sample.pick(request.problem, choices, drawn, request.hardware)
        return sample.draw(request.problem, choices, request.hardware)

    def _drawn_for_family(self, request: PlanRequest, sample: ChoiceSample) -> frozenset[TiledConfig]:
        problem, hardware = request.problem, request.hardware
        largest = resized(problem, M=_LARGEST, N=_LARGEST, K=problem.K, B=problem.B)
        key = (largest, sample, request.space, hardware)
        known = self._family_samples.get(key)
        if known is None:
            choices = self._generated(replace(request, problem=largest), request.space)
            known = self._family_samples[key] = sample.draw_for_family(largest, choices, hardware)
        return known

    @staticmethod
    def _generated(request: PlanRequest, space: SearchSpace) -> list[Choice]:
        from diode.integration.lowering import lowered

        with lowered(request.problem, space, request.hardware) as candidates:
            return list(dict.fromkeys(candidate.choice for candidate in candidates))

    def pattern(self, problem: MMShape, config: TiledConfig, hardware: Hardware) -> KernelPattern:
        kind = (
            problem.op,
            problem.layout,
            problem.a.dtype,
            problem.out.dtype,
            problem.bias and (problem.bias.dtype, problem.bias.strides[-2] == 0),
            problem.allow_tf32,
            # Inductor leaves out what a dimension of one makes superfluous
            problem.B == 1,
            problem.M == 1,
            problem.N == 1,
            problem.K == 1,
            config.template,
            config.even_k,
            hardware,
        )
        known = self._patterns.get(kind)
        if known is None:
            known = self._patterns[kind] = learn_pattern(problem, config, hardware)
        return known


def learn_pattern(problem: MMShape, config: TiledConfig, hardware: Hardware) -> KernelPattern:
    """Lets Inductor render one kernel of this kind."""
    from diode.integration.lowering import lowered

    example = pattern_example(problem, even_k=config.even_k)
    with lowered(example, "EXHAUSTIVE", hardware) as candidates:
        for candidate in candidates:
            choice = candidate.choice
            if (
                isinstance(choice, type(config))
                and choice.template == config.template
                and choice.even_k == config.even_k
            ):
                rendered = candidate.render()
                if rendered is not None:
                    return KernelPattern.learn(rendered.source, rendered.signature, rendered.aligned, example)
    raise UnsupportedError(f"Inductor renders no {config.template} kernel for problems like {problem}")


def launch_grid(problem: MMShape, config: TiledConfig) -> tuple[int, int, int]:
    tiles = math.ceil(problem.M / config.block_m) * math.ceil(problem.N / config.block_n)
    if isinstance(config, PersistentTMAConfig):
        return (min(config.num_sms, tiles), 1, 1)
    layers = math.ceil(problem.B / _LARGEST_GRID_Y)
    return (tiles, math.ceil(problem.B / layers), layers)


def surely_illegal(problem: MMShape, config: TiledConfig, hardware: Hardware) -> Failure | None:
    """A failure where the pipeline's buffers alone exceed the shared memory of a block; None says nothing."""
    limit = hardware.shared_memory_per_block
    if isinstance(config, TritonGEMMConfig) and config.block_k >= problem.K:
        return None  # a loop of one step is no loop: the compiler makes no pipeline of it, whatever the stages
    stage_bytes = (config.block_m + config.block_n) * config.block_k * item_bytes(problem.a.dtype)
    needed = stage_bytes * max(config.num_stages - 1, 0)
    if limit is None or needed <= limit:
        return None
    return Failure("shared_memory", f"pipeline buffers of {needed} bytes, limit {limit}; not compiled")
