"""Compiled kernels as files, named by their keys: they can be compiled on one machine and timed on another."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from diode.collection.kernels.compiler import CompiledKernel
from diode.errors import FileFormatError


def kernel_path(store: str | Path, key: str) -> Path:
    return Path(store) / key[:2] / f"{key}.kernel"


def write_kernel(path: Path, kernel: CompiledKernel) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    # For its checksum only: kernels are much alike, and together they become a tenth in an archive.
    partial.write_bytes(zlib.compress(msgspec.msgpack.encode(kernel), level=0))
    partial.replace(path)


def read_kernel(path: Path) -> CompiledKernel:
    try:
        return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=CompiledKernel)
    except (OSError, zlib.error, msgspec.DecodeError) as error:
        raise FileFormatError(
            f"{path}: not a compiled kernel ({error}); remove it to have it compiled again"
        ) from error
