"""The facts of a device that choosing a kernel depends on."""

from __future__ import annotations

from typing import Annotated

import msgspec

from diode.types.problem import LARGEST_FLOAT, Name

Count = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_FLOAT)]


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of device. What the driver or the vendor does not tell is None, never guessed."""

    name: Name
    device_type: Name
    capability: tuple[Count, Count] | None = None
    sm_count: Count | None = None
    shared_memory_per_sm: Count | None = None
    shared_memory_per_block: Count | None = None
    registers_per_sm: Count | None = None
    max_threads_per_sm: Count | None = None
    warp_size: Count | None = None
    l2_bytes: Count | None = None
    memory_bytes: Count | None = None
    memory_bandwidth_gbs: Rate | None = None
    peak_tflops: tuple[tuple[str, Rate], ...] = ()
    """Dense matrix rate by element type, `tf32` among them."""

    def __str__(self) -> str:
        return self.name
