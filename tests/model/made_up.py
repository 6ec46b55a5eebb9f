"""Small truths made by hand: square problems, tiles that are named by their block, times as one likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diode.model.evaluation import Order, Ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.types import (
    Choice,
    Dataset,
    Environment,
    Failure,
    Measurement,
    MMShape,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

HERE = Environment(H200, torch="2.13.0", triton="3.9.0")


def problem_of(size: int) -> MMShape:
    return MMShape.of("mm", size, size, size)


def config(block: int) -> TritonGEMMConfig:
    return TritonGEMMConfig("triton::mm", block, block, 32, 3, 4)


def timed(problem: MMShape, choice: Choice, time_us: float | None, round: int = 1) -> Measurement:
    """No time is a failure."""
    method = TimingMethod("diode-sweep", "median", kernel="static" if round > 1 else "family", round=round)
    if time_us is None:
        return Measurement(problem, choice, HERE, method, failure=Failure("shared_memory"))
    return Measurement(problem, choice, HERE, method, Timing(time_us))


def truth_of(times: Mapping[MMShape, Mapping[Choice, float | None]]) -> Truth:
    rows = [timed(problem, choice, time) for problem, row in times.items() for choice, time in row.items()]
    return Truth.of(Dataset.of(rows))


def ranked(orders: Mapping[int, Sequence[int]]) -> Ranker:
    """Ranks as it is told: blocks by the size of the problem."""

    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        choices = truth.choices_of(measured)
        return np.array([choices.index(config(block)) for block in orders[measured.problem.M]], dtype=np.intp)

    return rank
