"""Quantities as a reader sees them."""

from __future__ import annotations

import pytest

from diode.report.words import count, counted, microseconds, percent


@pytest.mark.parametrize(
    ("time_us", "said"),
    [(0.5, "0.5 µs"), (12.345, "12.3 µs"), (999.0, "999 µs"), (1500.0, "1.5 ms"), (2.5e6, "2.5 s")],
)
def test_a_time_has_its_unit(time_us: float, said: str) -> None:
    assert microseconds(time_us) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0.00%"), (0.01234, "1.23%"), (0.09994, "9.99%"), (0.09997, "10.0%"), (0.1234, "12.3%"), (12.5, "1,250%")],
)
def test_a_share_has_the_digits_that_it_deserves(share: float, said: str) -> None:
    assert percent(share) == said


def test_counts_are_spaced_and_nouns_agree() -> None:
    assert count(999) == "999"
    assert count(1234567).split() == ["1", "234", "567"] or "\u00a0" in count(1234567) or "\u202f" in count(1234567)
    assert counted(1, "problem") == "1 problem"
    assert counted(2, "problem") == "2 problems"
