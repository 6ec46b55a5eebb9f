"""Quantities as a reader sees them."""

from __future__ import annotations


def microseconds(time_us: float) -> str:
    """A time with its unit, to three digits."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3g} ms"
    return f"{time_us:.3g} µs"


def percent(share: float) -> str:
    """A share in percent, with as many digits as it deserves."""
    value = 100.0 * share
    if abs(value) >= 99.95:
        return f"{value:,.0f}%"
    return f"{value:.1f}%" if abs(value) >= 9.995 else f"{value:.2f}%"


def count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"
