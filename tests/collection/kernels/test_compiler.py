"""Kernels compiled for an H200 that is not here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from diode.collection.kernels.compiler import CompileTarget, KernelCompileError, compile_kernel, kernel_key
from diode.collection.kernels.pattern import KernelSource
from diode.types import Hardware, MMShape, PersistentTMAConfig, TritonGEMMConfig
from diode.types.known_hardware import H200

TARGET = CompileTarget.of(H200)
SQUARE = MMShape.of("mm", 1024, 2048, 1024, layout="NT")
CONFIG = TritonGEMMConfig("triton::mm", 128, 128, 64, 3, 4, even_k=True)
SMALL = TritonGEMMConfig("triton::mm", 16, 16, 16, 1, 1, even_k=True)
TMA = PersistentTMAConfig("triton::mm_persistent_tma", 64, 64, 32, 4, 4, True, False, 132, even_k=True)
STORE = """@triton.jit
def stores(out_ptr0):
    tl.store(out_ptr0 + tl.arange(0, 64), {})
"""
HANDMADE = KernelSource(STORE.format("1.0"), (("out_ptr0", "*fp32"),), (0,), num_warps=1, num_stages=1)


@pytest.fixture
def compilers_folder(tmp_path, monkeypatch):
    """Where the compiler puts what it needs for a moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("form", ["static", "family"])
def test_a_kernel_becomes_a_binary_with_what_its_launch_needs(planner, form, compilers_folder):
    source = getattr(planner.pattern(SQUARE, CONFIG, H200), form)(SQUARE, CONFIG)
    kernel = compile_kernel(source, TARGET)
    assert kernel.binary.startswith(b"\x7fELF")
    assert kernel.entry.encode() in kernel.binary
    assert kernel.entry == source.entry == "triton_mm"
    # three stages of a tile of A and one of B, of two bytes an element
    assert kernel.shared_bytes == 3 * (128 + 128) * 64 * 2
    assert (kernel.num_warps, kernel.metadata["num_warps"], kernel.metadata["warp_size"]) == (4, 4, 32)
    assert kernel.key == kernel_key(source, TARGET)
    assert list(compilers_folder.glob("diode-*")) == []


def test_a_persistent_kernel_keeps_its_pipeline_in_shared_memory(planner):
    kernel = compile_kernel(planner.pattern(SQUARE, TMA, H200).family(SQUARE, TMA), TARGET)
    assert 4 * (64 + 64) * 32 * 2 <= kernel.shared_bytes <= 1.5 * 4 * (64 + 64) * 32 * 2
    assert kernel.metadata["global_scratch_size"] > 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("not_defined_anywhere", "not_defined_anywhere"),
        ("tl.arange(0, 3)", "power of 2"),
        ("tl.zeros((1 << 21,), tl.float32)", "1048576"),
        ("tl.inline_asm_elementwise('no such thing;', '=f,f', [1.0], tl.float32, True, 1)", "near 'thing'"),
    ],
)
def test_a_broken_kernel_is_refused_with_the_compilers_reason(value, reason, compilers_folder):
    before = "".join(f"    number{line} = {'1 + ' * 20}{line}\n" for line in range(12))  # which an error would quote
    source = replace(HANDMADE, text=STORE.format(value).replace("    tl.store", f"{before}    tl.store"))
    with pytest.raises(KernelCompileError, match=reason) as caught:
        compile_kernel(source, TARGET)
    assert str(caught.value).startswith("stores: ")
    assert len(str(caught.value)) < 450
    assert list(compilers_folder.glob("diode-*")) == []


def test_a_target_that_the_compiler_does_not_know_is_refused():
    volta = CompileTarget.of(msgspec.structs.replace(H200, capability=(1, 3)))
    with pytest.raises(KernelCompileError, match="stores: "):
        compile_kernel(HANDMADE, volta)


def test_equal_sources_are_one_kernel_everywhere(planner):
    source = planner.pattern(SQUARE, SMALL, H200).family(SQUARE, SMALL)
    again = compile_kernel(source, TARGET)
    assert compile_kernel(replace(source), TARGET) == again
    program = (
        "import sys, msgspec\n"
        "from diode.collection.kernels.compiler import CompileTarget, kernel_key\n"
        "from diode.collection.kernels.pattern import KernelSource\n"
        "source = msgspec.json.decode(sys.stdin.buffer.read(), type=KernelSource)\n"
        f"print(kernel_key(source, {TARGET!r}))\n"
    )
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            input=msgspec.json.encode(source),
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        )
        assert told.stdout.decode().strip() == again.key


def test_whatever_changes_the_binary_changes_the_key():
    changes = [
        {},
        {"text": STORE.format("2.0")},
        {"signature": (("out_ptr0", "*fp16"),)},
        {"aligned": ()},
        {"num_warps": 2},
        {"num_stages": 2},
    ]
    keys = {kernel_key(replace(HANDMADE, **change), TARGET) for change in changes}
    keys.add(kernel_key(HANDMADE, replace(TARGET, arch=80)))
    assert len(keys) == len(changes) + 1


def test_a_target_is_told_by_the_hardware_alone():
    assert CompileTarget("cuda", 90, 32) == TARGET
    assert CompileTarget.of(Hardware("a CPU", "cpu")) == CompileTarget("cpu", 0, 32)
