"""The door to solution files, which say what choices to take for which problems; the suffix tells the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from diode.errors import InvalidRecordError, UsageError
from diode.storage.atomic import write_atomically
from diode.storage.counting import fastest
from diode.storage.csv_solution import solution_from_csv, write_solution_csv
from diode.storage.flaws import Flaw, naming_file
from diode.storage.solution_json import solution_from_json, solution_to_json
from diode.types.choice import Choice
from diode.types.dataset import Dataset
from diode.types.problem import MMShape
from diode.types.solution import Solution, SolutionEntry

SOLUTION_SUFFIXES: Final = (".json", ".csv")
_LONGEST_NAME: Final = 200


def read_solution(path: str | os.PathLike[str]) -> Solution:
    """A solution without a name of its own gets that of its file."""
    path = Path(path)
    suffix = solution_suffix(path)
    with naming_file(path):
        read = solution_from_csv if suffix == ".csv" else solution_from_json
        return read(path.read_bytes(), path.stem[:_LONGEST_NAME])


def write_solution(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Writes a solution such that reading gives the same one; the file appears whole or not at all."""
    path = Path(path)
    suffix = solution_suffix(path)
    solution = _as_read_again(solution)
    if suffix == ".csv":
        write_solution_csv(solution, path)
    else:
        write_atomically(path, solution_to_json(solution))


def solution_suffix(path: Path) -> str:
    if path.suffix not in SOLUTION_SUFFIXES:
        raise UsageError(f"{path}: {path.suffix!r} is no suffix of solutions; name it {' or '.join(SOLUTION_SUFFIXES)}")
    return path.suffix


def solution_of(dataset: Dataset, name: str) -> Solution:
    """The fastest choice of each GEMM that has a time.

    Times of several timers do not compare, so a problem that has them gets the fastest choice by each. Nor do those of
    several devices, but a solution does not say which device it is for: such a dataset is refused.
    """
    best = [row for row in fastest(dataset) if isinstance(row.problem, MMShape)]
    if not best:
        raise UsageError(f"solution {name!r}: no GEMM among {len(dataset)} measurements has a time")
    devices = sorted({row.environment.hardware.name for row in best})
    if len(devices) > 1:
        raise UsageError(f"solution {name!r}: times of {', '.join(devices)}, but a solution is for one device")
    entries: dict[tuple[MMShape, Choice], SolutionEntry] = {}
    for row in best:
        if isinstance(row.problem, MMShape):
            entries.setdefault((row.problem, row.choice), SolutionEntry(row.problem, row.choice, row.time_us))
    return Solution(name, tuple(entries.values()))


def _as_read_again(solution: Solution) -> Solution:
    """Records are built without checks, so this is where a wrong one is found: before it is in a file."""
    place = f"not written, since it could not be read again: solution {solution.name!r}"
    try:
        read_again = solution_from_json(solution_to_json(solution), solution.name)
    except (Flaw, TypeError, ValueError, OverflowError) as cause:
        raise InvalidRecordError(f"{place}: {cause}") from cause
    if read_again != solution:
        raise InvalidRecordError(place)
    return read_again
