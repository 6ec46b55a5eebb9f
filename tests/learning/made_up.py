"""Autotunings as Inductor would tell them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from diode.learning.store import Autotuning, Outcome
from diode.types import AtenChoice, Choice, Environment, Failure, MMShape, Timing, TimingMethod, TritonGEMMConfig
from diode.types.known_hardware import H200

HERE = Environment(H200, torch="2.13.0", triton="3.9.0", template_hashes=(("triton::mm", "0" * 64),))
BY_INDUCTOR = TimingMethod("inductor", "min", flush_bytes=1024, launch_hidden=False)
LATENCY_HIDDEN = msgspec.structs.replace(BY_INDUCTOR, launch_hidden=True)
LIBRARY = AtenChoice("mm")


def problem_of(size: int) -> MMShape:
    return MMShape.of("mm", size, size, size)


def config(block: int, stages: int = 3) -> TritonGEMMConfig:
    return TritonGEMMConfig("triton::mm", block, block, 32, stages, 4)


def tuned(
    problem: MMShape,
    times: Mapping[Choice, float | None],
    environment: Environment = HERE,
    method: TimingMethod = BY_INDUCTOR,
) -> Autotuning:
    """No time is a failure."""
    outcomes = tuple(
        Outcome(choice, method, None, Failure("unknown"))
        if time_us is None
        else Outcome(choice, method, Timing(time_us), None)
        for choice, time_us in times.items()
    )
    return Autotuning(environment, problem, outcomes)


def numbered(number: int) -> Autotuning:
    return tuned(problem_of(16 * (number + 1)), {LIBRARY: 100.0 + number, config(64): None})
