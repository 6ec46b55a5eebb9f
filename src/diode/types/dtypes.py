"""Names of element types, as torch writes them without the `torch.` in front."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

DType = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*\Z", max_length=40)]

_ITEM_BYTES: Final[dict[str, int]] = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}


def item_bytes(dtype: DType) -> int:
    """Bytes of one element; 0 for a type that this version does not know."""
    return _ITEM_BYTES.get(dtype, 0)
