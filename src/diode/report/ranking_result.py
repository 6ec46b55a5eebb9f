"""Reads what `benchmarks/ranking.py` writes: how a model's first choices stand beside an exhaustive search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from diode.errors import FileFormatError
from diode.storage.flaws import decoded, naming_file

SHOWN_AT: Final = ("1", "3", "8")
"""Numbers of first choices."""

ByK = dict[str, float]


class Figures(msgspec.Struct, frozen=True):
    """By the number of first choices, as text."""

    efficiency: ByK
    regret_p95: ByK
    regret_worst: ByK


class NoiseFloor(msgspec.Struct, frozen=True):
    p50: float
    p95: float


class RegimeFigures(Figures, frozen=True):
    problems: int
    noise_floor: NoiseFloor | None = None


class JudgedModel(msgspec.Struct, frozen=True):
    name: str
    sha256: str


class HardProblem(msgspec.Struct, frozen=True):
    """One where the first choice loses much."""

    problem: str
    regime: str
    chosen: str
    oracle: str
    oracle_us: float
    chosen_us: float | None = None


class RankingResult(Figures, frozen=True):
    model: JudgedModel
    gpu: str
    torch: str
    test_problems: Annotated[int, msgspec.Meta(ge=1)]
    choices: int
    by_regime: dict[str, RegimeFigures]
    baselines: dict[str, Figures]
    worst: list[HardProblem] = []
    noise_floor: NoiseFloor | None = None
    triton: str = ""
    driver: str = ""
    commit: str = ""
    command: str = ""
    taken: str = ""


def read_ranking(path: Path) -> RankingResult:
    with naming_file(path):
        found: RankingResult = decoded(path.read_bytes(), RankingResult)
    for figures in (found, *found.by_regime.values(), *found.baselines.values()):
        for by_k in (figures.efficiency, figures.regret_p95, figures.regret_worst):
            if not by_k.keys() >= set(SHOWN_AT):
                raise FileFormatError(f"{path}: not all figures are given for {', '.join(SHOWN_AT)} choices")
    return found
