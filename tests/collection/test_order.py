"""The order of a sweep."""

from __future__ import annotations

from diode.collection.order import in_turns
from diode.types import MMShape


def family(op: str, k: int, count: int) -> list[MMShape]:
    return [MMShape.of(op, 8 * size, 64, k) for size in range(1, count + 1)]


def test_every_problem_is_there_once():
    problems = [*family("mm", 64, 3), *family("addmm", 32, 2), *family("bmm", 16, 4)]
    assert sorted(map(str, in_turns(problems))) == sorted(map(str, problems))


def test_the_first_part_of_an_order_has_some_of_each_op():
    problems = [*family("addmm", 32, 2), *family("addmm", 64, 2), *family("mm", 32, 2), *family("mm", 64, 2)]
    assert [problem.op for problem in in_turns(problems)] == ["addmm", "addmm", "mm", "mm"] * 2


def test_a_family_stays_together_however_it_was_given():
    scattered = [problem for pair in zip(family("mm", 64, 3), family("mm", 32, 3), strict=True) for problem in pair]
    assert [problem.K for problem in in_turns(scattered)] == [64, 64, 64, 32, 32, 32]
