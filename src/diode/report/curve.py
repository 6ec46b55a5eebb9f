"""The learning curve as a record: how good a quick model gets with how many measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from diode.errors import FileFormatError
from diode.storage.flaws import decoded, naming_file

CURVE_SCHEMA: Final = 1

Count = Annotated[int, msgspec.Meta(ge=1)]
Minutes = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]


class LearningPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model trained on so much, judged by problems that it has not seen."""

    problems: Count
    measurements: Count
    gpu_minutes: Minutes | None
    """None where the data do not tell."""
    efficiency_at_1: Percent
    efficiency_at_3: Percent


class LearningCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    points: Annotated[tuple[LearningPoint, ...], msgspec.Meta(min_length=2)]
    held_out: Count
    """Problems that judged every point."""
    minutes_are: Literal["timed repeats", "as given"] = "timed repeats"
    """The GPU's time in the kernels that were timed, or a share of what somebody said that the collection took."""
    format: Literal["diode-learning-curve"] = "diode-learning-curve"
    schema: int = CURVE_SCHEMA


class _Header(msgspec.Struct):
    format: str = ""
    schema: int = 0


def read_curve(path: Path) -> LearningCurve:
    with naming_file(path):
        content = path.read_bytes()
        header = decoded(content, _Header)
        if (header.format, header.schema) != ("diode-learning-curve", CURVE_SCHEMA):
            raise FileFormatError(f"{path}: is no learning curve of schema {CURVE_SCHEMA}; --learning-curve makes one")
        curve: LearningCurve = decoded(content, LearningCurve)
    return curve


def encode_curve(curve: LearningCurve) -> bytes:
    return msgspec.json.format(msgspec.json.encode(curve), indent=1) + b"\n"
