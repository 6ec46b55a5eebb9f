"""Picks measurements by what they are of. Each condition is looked at once per distinct record, not once per row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from diode.types.choice import Choice
from diode.types.dataset import Dataset
from diode.types.problem import MMShape, Problem

Wanted = str | Collection[str] | None
Record = TypeVar("Record")


def filter_dataset(
    dataset: Dataset,
    *,
    hardware: Wanted = None,
    op: Wanted = None,
    dtype: Wanted = None,
    layout: Wanted = None,
    kind: Wanted = None,
    timer: Wanted = None,
    succeeded: bool | None = None,
    problem: Callable[[Problem], bool] | None = None,
) -> Dataset:
    """The measurements that meet every condition given, in their order.

    A condition is one name or several, of which any will do: the name of the hardware, the op, A's element type, the
    layout (`NT`), the kind of choice (`triton_gemm`, `aten`), the timer. `succeeded` picks times or failures, `problem`
    is a condition of the caller's own.
    """
    columns = dataset.columns
    keep = np.ones(len(dataset), dtype=np.bool_)
    if hardware is not None:
        keep &= _among(hardware, (row.hardware.name for row in dataset.environments))[columns.environment_id]
    for wanted, name_of in ((op, op_of), (dtype, dtype_of), (layout, layout_of)):
        if wanted is not None:
            keep &= _among(wanted, map(name_of, dataset.problems))[columns.problem_id]
    if kind is not None:
        keep &= _among(kind, map(kind_of, dataset.choices))[columns.choice_id]
    if timer is not None:
        keep &= _among(timer, (row.timer for row in dataset.methods))[columns.method_id]
    if succeeded is not None:
        keep &= dataset.succeeded == succeeded
    if problem is not None:
        keep &= np.array([problem(row) for row in dataset.problems], dtype=np.bool_)[columns.problem_id]
    return dataset.select(keep)


def op_of(problem: Problem) -> str:
    return problem.op


def dtype_of(problem: Problem) -> str:
    """A's element type, or that of the first input."""
    if isinstance(problem, MMShape):
        return problem.a.dtype
    return problem.inputs[0].dtype if problem.inputs else ""


def layout_of(problem: Problem) -> str:
    """`NN`, `NT` and so on; empty for what is no GEMM."""
    return problem.layout if isinstance(problem, MMShape) else ""


def kind_of(choice: Choice) -> str:
    """The name that the kind of choice has in files."""
    return str(choice.__struct_config__.tag)


def _among(wanted: str | Collection[str], names: Iterable[str]) -> NDArray[np.bool_]:
    accepted = {wanted} if isinstance(wanted, str) else set(wanted)
    return np.array([name in accepted for name in names], dtype=np.bool_)
