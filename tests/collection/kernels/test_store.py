"""Compiled kernels as files."""

from __future__ import annotations

import msgspec
import pytest

from diode.collection.kernels.compiler import CompiledKernel
from diode.collection.kernels.store import kernel_path, read_kernel, write_kernel
from diode.errors import FileFormatError

KERNEL = CompiledKernel(
    key="00ff" * 8,
    entry="triton_mm",
    binary=b"\x7fELF" + bytes(range(256)) * 40,
    shared_bytes=98304,
    num_warps=4,
    metadata={"name": "triton_mm", "warp_size": 32, "launch_pdl": False, "maxnreg": None},
)


def test_a_kernel_comes_back_as_it_was_written(tmp_path):
    path = kernel_path(tmp_path / "a new folder", KERNEL.key)
    write_kernel(path, KERNEL)
    assert read_kernel(path) == KERNEL
    assert list(path.parent.iterdir()) == [path]


def test_writing_again_replaces_the_file(tmp_path):
    path = kernel_path(str(tmp_path), KERNEL.key)
    write_kernel(path, KERNEL)
    other = msgspec.structs.replace(KERNEL, binary=b"another")
    write_kernel(path, other)
    assert read_kernel(path) == other


def test_keys_lie_apart(tmp_path):
    keys = ["00ff" * 8, "00fe" * 8, "01ff" * 8]
    assert len({kernel_path(tmp_path, key) for key in keys}) == 3
    assert len({kernel_path(tmp_path, key).parent for key in keys}) == 2


def test_a_damaged_file_is_refused_by_name_with_what_to_do(tmp_path):
    path = kernel_path(tmp_path, KERNEL.key)
    write_kernel(path, KERNEL)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :]
    for content in (b"", b"no kernel", whole[:-1], whole[:middle], flipped):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"not a compiled kernel .* remove it") as caught:
            read_kernel(path)
        assert str(path) in str(caught.value)


def test_a_file_of_another_kind_or_none_at_all_is_refused(tmp_path):
    path = tmp_path / "x.kernel"
    with pytest.raises(FileFormatError, match=r"x\.kernel: not a compiled kernel"):
        read_kernel(path)
    write_kernel(path, {"key": "00", "entry": 7})
    with pytest.raises(FileFormatError, match=r"x\.kernel: not a compiled kernel"):
        read_kernel(path)
