"""Durations as people write them: `90`, `90s`, `10m`, `1h30m`."""

from __future__ import annotations

import re
from typing import Final

from diode.errors import UsageError

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def parse_duration(text: str, option: str) -> float:
    """Seconds; `option` is where the text was said."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        raise UsageError(f"{option} {text!r}: is no duration: write 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = 3600.0 * hours + 60.0 * minutes + seconds
    if total <= 0:
        raise UsageError(f"{option} {text!r}: leaves no time at all")
    return total


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= 60 else f"{whole}s"
