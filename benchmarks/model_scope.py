"""What a model has learned of what is to be measured: where it falls back, a comparison would be of Inductor's own."""

from __future__ import annotations

from collections.abc import Iterable

from diode.model.card import ModelCard
from diode.types import MMShape


def precision_of(problem: MMShape) -> str:
    return "tf32" if problem.allow_tf32 else problem.a.dtype


def knows(card: ModelCard, problem: MMShape) -> bool:
    return problem.op in card.ops and precision_of(problem) in card.precisions


def unknown_to(card: ModelCard, problems: Iterable[MMShape], ops: Iterable[str] = ()) -> list[str]:
    """Ops and precisions that the model would need for the problems, and further `ops`, and has not learned."""
    problems = list(problems)
    needed_ops = {problem.op for problem in problems} | set(ops)
    needed_precisions = {precision_of(problem) for problem in problems}
    return sorted(needed_ops - set(card.ops)) + sorted(needed_precisions - set(card.precisions))
