"""Versions of models, in their order: of two that fit equally well the later one is found."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LEARNED: Final = "+learned"


@dataclass(frozen=True, order=True)
class ModelVersion:
    """`1.2.3`, or what was learned from it since: `1.2.3+learned.20261119`, and `.2` for the second of that day."""

    base: tuple[int, ...]
    day: int = 0
    number: int = 0

    @classmethod
    def of(cls, text: str) -> ModelVersion:
        """Of any text: what is no number in it is passed over, and zeros at the end say nothing."""
        base = [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]
        while base and not base[-1]:
            base.pop()
        learned = re.fullmatch(r"\.(\d+)(?:\.(\d+))?", text.partition(_LEARNED)[2])
        if learned is None:
            return cls(tuple(base))
        return cls(tuple(base), int(learned[1]), int(learned[2] or 1))


def next_version(version: str, others: Iterable[str] = ()) -> str:
    """Of what is learned today from a model of `version`: later than that, and than `others` learned from the same."""
    here = ModelVersion.of(version)
    latest = max([here, *(other for text in others if (other := ModelVersion.of(text)).base == here.base)])
    today = int(f"{datetime.datetime.now(datetime.timezone.utc):%Y%m%d}")
    base = version.partition(_LEARNED)[0]
    if latest.day < today:
        return f"{base}{_LEARNED}.{today}"
    return f"{base}{_LEARNED}.{latest.day}.{latest.number + 1}"
