"""Files that are appended to frame by frame: whole after a kill -9, short of some seconds after a power cut.

Such a file begins with a line that says what it is. Each frame is one record, with its length and a checksum before it.
What a crash left half-written is the end of a file. What is no frame, but has whole frames after it, is damage.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

_HEAD: Final = struct.Struct("<II")

UNREADABLE: Final = (zlib.error, msgspec.DecodeError)
"""What `record_in` raises for a frame that is whole, but of another version."""


@dataclass(frozen=True)
class Damage:
    """Bytes that are no frame and have whole frames after them."""

    position: int
    frames_before: int


@dataclass(frozen=True)
class Frames:
    """The whole frames of a file."""

    payloads: tuple[bytes, ...]
    end: int
    """Where the last of them ends; behind it there is nothing, or what a crash left."""
    damages: tuple[Damage, ...] = ()


def frame_of(record: msgspec.Struct) -> bytes:
    # Choices repeat from problem to problem: a tenth of the size for a hundredth of a second.
    payload = zlib.compress(msgspec.msgpack.encode(record), level=1)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def record_in(payload: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    return decoder.decode(zlib.decompress(payload))


def frames_in(content: bytes, start: int) -> Frames:
    """The frames of a file whose first line ends at `start`."""
    payloads: list[bytes] = []
    damages: list[Damage] = []
    end = position = start
    while position < len(content):
        payload = _payload(content, position)
        if payload is None:
            found = _next_frame(content, position)
            if found is None:
                break
            damages.append(Damage(position, len(payloads)))
            position = found
            continue
        payloads.append(payload)
        end = position = position + _HEAD.size + len(payload)
    return Frames(tuple(payloads), end, tuple(damages))


def _payload(content: bytes, position: int) -> bytes | None:
    """The payload of the frame that begins here, or None where no whole frame does."""
    if position + _HEAD.size > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, position)
    # A power cut may leave zeros, which would pass for a frame without content.
    if not 0 < length <= len(content) - position - _HEAD.size:
        return None
    payload = content[position + _HEAD.size : position + _HEAD.size + length]
    return payload if zlib.crc32(payload) == checksum else None


def _next_frame(content: bytes, position: int) -> int | None:
    """Where the first whole frame behind a place begins: a damaged length does not say how far it is."""
    return next((place for place in range(position + 1, len(content)) if _payload(content, place) is not None), None)
