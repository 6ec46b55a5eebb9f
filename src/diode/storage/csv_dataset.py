"""Measurements as CSV for spreadsheets and other programs: flat rows, without all that a dataset holds."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, Final

import msgspec

from diode.storage.atomic import replacing
from diode.storage.filtering import dtype_of, kind_of, layout_of
from diode.types.choice import Choice
from diode.types.dataset import NO_INT, Dataset
from diode.types.measurement import Environment, Failure, TimingMethod
from diode.types.problem import MMShape, Operand, Problem

_ENVIRONMENT: Final = ("hardware", "torch", "triton", "driver", "taken")
_METHOD: Final = ("timer", "statistic", "kernel", "round")
_PROBLEM: Final = ("op", "B", "M", "N", "K", "dtype", "out_dtype", "layout", "allow_tf32")
_STRIDES: Final = ("a", "b", "out", "bias")
_CHOICE: Final = (
    *("kind", "choice", "block_m", "block_n", "block_k", "num_stages", "num_warps", "group_m", "k_split"),
    *("even_k", "use_fast_accum", "acc_type", "num_sms"),
)
_TIMING: Final = ("time_us", "min_us", "spread", "repeats", "clock_mhz")
_FAILURE: Final = ("failure", "message")


def write_csv(dataset: Dataset, path: Path) -> None:
    environments = [_environment_cells(row) for row in dataset.environments]
    methods = [_method_cells(row) for row in dataset.methods]
    problems = [_problem_cells(row) for row in dataset.problems]
    choices = [_choice_cells(row) for row in dataset.choices]
    failures = [*map(_failure_cells, dataset.failures), ["", ""]]
    columns = dataset.columns
    ids = (columns.environment_id, columns.method_id, columns.problem_id, columns.choice_id, columns.failure_id)
    timings = zip(*(getattr(columns, name).tolist() for name in _TIMING), strict=True)
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        strides = [f"{name}_strides" for name in _STRIDES]
        writer.writerow([*_ENVIRONMENT, *_METHOD, *_PROBLEM, *strides, *_CHOICE, *_TIMING, *_FAILURE])
        for environment, method, problem, choice, failure, timing in zip(
            *(column.tolist() for column in ids), timings, strict=True
        ):
            writer.writerow(
                environments[environment]
                + methods[method]
                + problems[problem]
                + choices[choice]
                + ["" if value == NO_INT or value != value else value for value in timing]
                + failures[failure]
            )
        text.flush()
        text.detach()


def _environment_cells(environment: Environment) -> list[Any]:
    return [environment.hardware.name, *(getattr(environment, name) for name in _ENVIRONMENT[1:])]


def _method_cells(method: TimingMethod) -> list[Any]:
    return [getattr(method, name) for name in _METHOD]


def _problem_cells(problem: Problem) -> list[Any]:
    if not isinstance(problem, MMShape):
        out_dtype = problem.out.dtype if problem.out else ""
        return [problem.op, "", "", "", "", dtype_of(problem), out_dtype, "", "", *([""] * len(_STRIDES))]
    sizes = [problem.B, problem.M, problem.N, problem.K]
    facts = [dtype_of(problem), problem.out.dtype, layout_of(problem), problem.allow_tf32]
    operands: list[Operand | None] = [getattr(problem, name) for name in _STRIDES]
    strides = ["" if operand is None else " ".join(map(str, operand.strides)) for operand in operands]
    return [problem.op, *sizes, *facts, *strides]


def _choice_cells(choice: Choice) -> list[Any]:
    fields = msgspec.structs.asdict(choice)
    name = fields.get("template") or fields.get("kernel") or fields.get("name") or kind_of(choice)
    return [kind_of(choice), name, *(fields.get(field, "") for field in _CHOICE[2:])]


def _failure_cells(failure: Failure) -> list[Any]:
    return [failure.reason, failure.message]
