"""What is checked on a GPU, each under the sentence that it proves.

Pytest runs these, and where it is missing, benchmarks/gpu_checks.py does: nothing here needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True)
class Check:
    name: str
    module: str
    run: Callable[[Path], None]
    """Given an empty folder; raises where what it checks does not hold."""

    def __str__(self) -> str:
        return self.name


REGISTERED: list[Check] = []

Checking = Callable[..., None]


def check(*cases: tuple[object, ...]) -> Callable[[Checking], Checking]:
    """Registers a function, once for each of the cases that it is called with after the folder.

    A check is named by the function, and by those parts of its case that are words and numbers.
    """

    def register(function: Checking) -> Checking:
        for case in cases or [()]:
            told = ", ".join(str(part) for part in case if isinstance(part, str | int))
            name = function.__name__ + (f"[{told}]" if told else "")
            REGISTERED.append(Check(name, function.__module__, partial(_run, function, case)))
        return function

    return register


def _run(function: Checking, case: tuple[object, ...], folder: Path) -> None:
    function(folder, *case)
