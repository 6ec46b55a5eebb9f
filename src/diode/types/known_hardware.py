"""Devices described by record, to lower and compile for them where they are not; values as their driver reports."""

from __future__ import annotations

from typing import Final

from diode.types.hardware import Hardware

H200: Final = Hardware(
    name="NVIDIA H200",
    device_type="cuda",
    capability=(9, 0),
    sm_count=132,
    shared_memory_per_sm=233472,
    shared_memory_per_block=232448,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    warp_size=32,
    l2_bytes=62914560,
    memory_bytes=150109880320,
    memory_bandwidth_gbs=4814.304,
    peak_tflops=(
        ("bfloat16", 989.4),
        ("float16", 989.4),
        ("float32", 66.9),
        ("float8_e4m3fn", 1978.9),
        ("int8", 1978.9),
        ("tf32", 494.7),
    ),
)

KNOWN_HARDWARE: Final = {"h200": H200}
