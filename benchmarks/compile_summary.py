"""From what single compiles cost to the figures that are told. Pure: rows in, figures out.

A row is one problem or model: `rows[mode]` has `search_seconds`, `compile_seconds`, and the time of what it compiled to
under `kernel_us` or `step_us`. A mode that is missing, or has no time, is left out of the figures that would need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from diode.features import least_us
from diode.model.evaluation import REGIMES, Regime, regime_of
from diode.types import Hardware, MMShape

Row = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)
BASE = "default"
LONGEST_US = 300.0


def geomean(values: Iterable[float]) -> float | None:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def modes_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(mode for row in rows for mode in row["rows"]))


def ratios(rows: Sequence[Row], quantity: str, over: str, under: str) -> list[float]:
    """`quantity` of one mode over that of another, for each row that has both."""
    found = []
    for row in rows:
        top, bottom = (row["rows"].get(mode, {}).get(quantity) for mode in (over, under))
        if top and bottom:
            found.append(top / bottom)
    return found


def summary_of_problems(rows: Sequence[Row]) -> dict[str, Any]:
    """Geomeans by mode beside DEFAULT: a speed-up above 1 is a faster kernel, a ratio below 1 a cheaper search."""
    others = [mode for mode in modes_of(rows) if mode != BASE]
    return {
        "problems": sum(bool(row["rows"]) for row in rows),
        "speedup_vs_default_kernels": {mode: _told(ratios(rows, "kernel_us", BASE, mode)) for mode in others},
        "speedup_p05": {mode: _quantile(ratios(rows, "kernel_us", BASE, mode), 0.05) for mode in others},
        "search_ratio_vs_default": {mode: _told(ratios(rows, "search_seconds", mode, BASE)) for mode in others},
        "compile_ratio_vs_default": {mode: _told(ratios(rows, "compile_seconds", mode, BASE)) for mode in others},
        "beyond_aten_ratio_vs_default": {mode: beyond_aten_ratio(rows, mode) for mode in others},
        "median": {mode: _medians(rows, mode) for mode in modes_of(rows)},
    }


def by_regime(rows: Sequence[Row]) -> dict[str, Any]:
    grouped = {name: [row for row in rows if row["regime"] == name] for name in REGIMES}
    keys = ("problems", "speedup_vs_default_kernels", "search_ratio_vs_default")
    return {
        name: {key: value for key, value in summary_of_problems(group).items() if key in keys}
        for name, group in grouped.items()
        if group
    }


def beyond_aten_ratio(rows: Sequence[Row], mode: str) -> float | None:
    """What the compiles of a mode took beyond those without a search, as a share of the same for DEFAULT.

    Of sums, since a single difference of two walls may be zero or less.
    """
    both = [row["rows"] for row in rows if all(name in row["rows"] for name in ("aten", BASE, mode))]
    mine, default = (
        sum(r[name]["compile_seconds"] - r["aten"]["compile_seconds"] for r in both) for name in (mode, BASE)
    )
    return round(mine / default, 4) if default > 0 else None


def oddities(rows: Sequence[Row]) -> list[str]:
    """What a reader of the figures has to know: compiles that failed, wrong results, decisions that fell back."""
    found = []
    for row in rows:
        found += [f"{row['name']}, {mode}: failed: {error}" for mode, error in row.get("errors", {}).items()]
        for mode, facts in row["rows"].items():
            if facts.get("wrong"):
                found.append(f"{row['name']}, {mode}: wrong: {facts['wrong']}")
            if facts.get("fallbacks"):
                found.append(f"{row['name']}, {mode}: fell back: {facts['fallbacks']}")
    return found


def summary_of_models(rows: Sequence[Row]) -> dict[str, Any]:
    others = [mode for mode in modes_of(rows) if mode != BASE]
    return {
        "models": sum(bool(row["rows"]) for row in rows),
        "speedup_vs_default_steps": {mode: _told(ratios(rows, "step_us", BASE, mode)) for mode in others},
        "search_ratio_vs_default": {mode: _told(ratios(rows, "search_seconds", mode, BASE)) for mode in others},
        "compile_ratio_vs_default": {mode: _told(ratios(rows, "compile_seconds", mode, BASE)) for mode in others},
        "beyond_aten_ratio_vs_default": {mode: beyond_aten_ratio(rows, mode) for mode in others},
    }


def summary_of_exhaustive(rows: Sequence[Row]) -> dict[str, Any]:
    """Where a search was cut off, its seconds are a lower bound, and so each ratio to it is an upper one."""
    searched = [row for row in rows if "exhaustive" in row["rows"]]
    others = [mode for mode in modes_of(searched) if mode not in ("exhaustive", "aten")]
    cut_off = sum(bool(row["rows"]["exhaustive"].get("cut_off")) for row in searched)
    return {
        "problems": len(searched),
        "cut_off": cut_off,
        "is_upper_bound": cut_off > 0,
        "search_ratio_vs_exhaustive": {
            mode: _told(ratios(searched, "search_seconds", mode, "exhaustive")) for mode in others
        },
        "speedup_vs_exhaustive_kernels": {
            mode: _told(ratios(searched, "kernel_us", "exhaustive", mode)) for mode in others
        },
    }


def regime_of_rows(problem: MMShape, rows: Mapping[str, Mapping[str, Any]]) -> Regime | None:
    """By the fastest kernel that any mode ended with: here nobody knows the oracle."""
    times = [row["kernel_us"] for row in rows.values() if row.get("kernel_us")]
    return regime_of(problem, min(times)) if times else None


def chosen_problems(problems: Sequence[MMShape], count: int, hardware: Hardware) -> list[MMShape]:
    """A part of a test set such that the first n of it are spread over regimes, ops, layouts and types for every n.

    Regimes take turns, and within each the kinds of problem (op, type, layout) do; of a kind, the problems in the
    middle of its range of work come first. What takes very long even at best is left out: a search of it is mostly
    running it.
    """
    feasible = [problem for problem in problems if least_us(hardware, problem) < LONGEST_US]
    regimes: dict[str, list[MMShape]] = {name: [] for name in REGIMES}
    for problem in feasible:
        regimes[regime_of(problem, _expected_us(hardware, problem))].append(problem)
    in_turns = _in_turns([_spread(group) for group in regimes.values()])
    return in_turns[:count]


def _expected_us(hardware: Hardware, problem: MMShape) -> float:
    """Good kernels take some microseconds and reach some three quarters of the roofline."""
    return 3.0 + least_us(hardware, problem) / 0.75


def _spread(problems: Sequence[MMShape]) -> list[MMShape]:
    """Ops take turns, and of an op the element types and layouts."""
    ops = (_grouped(group, _kind).values() for group in _grouped(problems, lambda problem: problem.op).values())
    return _in_turns([_in_turns([_from_the_middle(members) for members in kinds]) for kinds in ops])


def _kind(problem: MMShape) -> tuple[bool, str, str]:
    return (problem.allow_tf32, problem.a.dtype, problem.layout)


def _grouped(problems: Sequence[MMShape], key: Callable[[MMShape], Key]) -> dict[Key, list[MMShape]]:
    groups: dict[Key, list[MMShape]] = {}
    for problem in sorted(problems, key=lambda problem: (problem.flops, problem.M, problem.N)):
        groups.setdefault(key(problem), []).append(problem)
    return groups


def _from_the_middle(members: Sequence[MMShape]) -> list[MMShape]:
    middle = (len(members) - 1) / 2
    return sorted(members, key=lambda problem: abs(members.index(problem) - middle))


def _in_turns(groups: Iterable[Sequence[MMShape]]) -> list[MMShape]:
    queues = [list(group) for group in groups if group]
    found: list[MMShape] = []
    while queues:
        found += [queue.pop(0) for queue in queues]
        queues = [queue for queue in queues if queue]
    return found


def _medians(rows: Sequence[Row], mode: str) -> dict[str, float]:
    names = ("search_seconds", "compile_seconds", "kernels_compiled", "kernels_benchmarked")
    present = [row["rows"][mode] for row in rows if mode in row["rows"]]
    return {name: sorted(row[name] for row in present)[len(present) // 2] for name in names}


def _told(values: list[float]) -> float | None:
    mean = geomean(values)
    return None if mean is None else round(mean, 4)


def _quantile(values: list[float], share: float) -> float | None:
    return round(sorted(values)[int(share * len(values))], 4) if values else None
