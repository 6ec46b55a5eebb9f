"""The order in which a sweep takes its problems."""

from __future__ import annotations

from collections.abc import Iterable

from diode.types import MMShape


def in_turns(problems: Iterable[MMShape]) -> list[MMShape]:
    """Families together, since they share kernels; ops in turns, so that a sweep cut short has some of each."""
    families: dict[tuple[object, ...], list[MMShape]] = {}
    for problem in problems:
        family = (problem.op, problem.layout, problem.a.dtype, problem.allow_tf32, problem.K, problem.B == 1)
        families.setdefault(family, []).append(problem)
    by_op: dict[str, list[list[MMShape]]] = {}
    for members in families.values():
        by_op.setdefault(members[0].op, []).append(members)
    placed = [
        ((number + 0.5) / len(of_op), op, members)
        for op, of_op in by_op.items()
        for number, members in enumerate(of_op)
    ]
    placed.sort(key=lambda place: place[:2])
    return [problem for _, _, members in placed for problem in members]
