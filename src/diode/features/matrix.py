"""Hardware, problem and choices as one matrix: a row per choice, a column per feature, vectorised over choices.

The columns are what decides the time of a GEMM kernel: how tiles fill the GPU, what a tile costs in arithmetic, in
traffic and in latency, what fits on an SM at once, and what the layout of the operands allows. Times in them are
estimates in microseconds from the rates of the hardware, relative to the least time that the problem can take.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.features.table import CHOICE_COLUMNS, ChoiceTable
from diode.types import Hardware, MMShape
from diode.types.dtypes import item_bytes

SCHEMA_VERSION: Final = 1

Column = NDArray[np.float32]
Columns = NDArray[np.float32]
"""A column a line."""

_FALLBACK_RATES: Final = {"bfloat16": 300.0, "float16": 300.0, "tf32": 150.0, "float32": 20.0}
_FALLBACK_BANDWIDTH: Final = 1000.0

PROBLEM_COLUMNS: Final = (
    "log_m",
    "log_n",
    "log_k",
    "log_b",
    "log_flops",
    "log_bytes",
    "log_intensity",
    "log_least_us",
    "memory_bound",
    "log_output",
    "a_transposed",
    "b_transposed",
    "item_bytes",
    "is_float16",
    "is_float32",
    "is_tf32",
    "has_bias",
    "bias_is_matrix",
    "is_batched",
    "unaligned_a",
    "unaligned_b",
    "unaligned_out",
)
CROSS_COLUMNS: Final = (
    "log_tiles",
    "log_waves",
    "wave_fill",
    "log_sm_fill",
    "tail_waves",
    "log_k_steps",
    "even_k",
    "unrolled",
    "fill_m",
    "fill_n",
    "fill_k",
    "log_shared",
    "shared_share",
    "per_sm_by_shared",
    "per_sm",
    "warps_per_sm",
    "log_accumulators",
    "log_tile_intensity",
    "arithmetic_us",
    "l2_us",
    "dram_us",
    "latency_us",
    "stored_us",
    "bound_us",
    "total_us",
    "log_steps_in_flight",
)
COLUMNS: Final = PROBLEM_COLUMNS + CHOICE_COLUMNS + CROSS_COLUMNS


def least_us(hardware: Hardware, problem: MMShape) -> float:
    """The least time that a problem can take: predictions are multiples of it."""
    rate, bandwidth = _rates(hardware, problem)
    return max(problem.flops / rate, problem.min_bytes / bandwidth) + 1.0


def feature_matrix(hardware: Hardware, problem: MMShape, table: ChoiceTable) -> NDArray[np.float32]:
    """One row per choice, columns as in `COLUMNS`; in memory each column is one piece, as it is computed."""
    columns = np.empty((len(COLUMNS), len(table)), dtype=np.float32)
    columns[: len(PROBLEM_COLUMNS)] = np.array(_problem_row(hardware, problem), dtype=np.float32)[:, None]
    columns[len(PROBLEM_COLUMNS) : -len(CROSS_COLUMNS)] = table.columns
    _fill_cross_columns(columns[-len(CROSS_COLUMNS) :], hardware, problem, table)
    matrix: NDArray[np.float32] = columns.T
    return matrix


def _rates(hardware: Hardware, problem: MMShape) -> tuple[float, float]:
    """Operations and bytes per microsecond."""
    name = "tf32" if problem.allow_tf32 else problem.a.dtype
    tflops = dict(hardware.peak_tflops).get(name) or _FALLBACK_RATES.get(name, 20.0)
    return tflops * 1e6, (hardware.memory_bandwidth_gbs or _FALLBACK_BANDWIDTH) * 1e3


def _problem_row(hardware: Hardware, problem: MMShape) -> list[float]:
    rate, bandwidth = _rates(hardware, problem)
    flops, traffic = problem.flops, problem.min_bytes
    arithmetic_us, traffic_us = flops / rate, traffic / bandwidth
    size = item_bytes(problem.a.dtype)
    wide = 16 // max(size, 1)
    layout = problem.layout
    float32 = problem.a.dtype == "float32"
    return [
        *(math.log2(max(value, 1)) for value in (problem.M, problem.N, problem.K, problem.B, flops, traffic)),
        math.log2(max(flops, 1) / max(traffic, 1)),
        math.log2(max(arithmetic_us, traffic_us) + 1.0),
        traffic_us / (traffic_us + arithmetic_us) if traffic else 1.0,
        math.log2(max(problem.B * problem.M * problem.N, 1)),
        layout[0] == "T",
        layout[1] == "T",
        size,
        problem.a.dtype == "float16",
        float32 and not problem.allow_tf32,
        problem.allow_tf32,
        problem.bias is not None,
        problem.bias is not None and problem.bias.strides[-2] != 0,
        len(problem.a.strides) == 3,
        *(_leading(operand.strides) % wide != 0 for operand in (problem.a, problem.b, problem.out)),
    ]


def _fill_cross_columns(columns: Columns, hardware: Hardware, problem: MMShape, table: ChoiceTable) -> None:
    rate, bandwidth = _rates(hardware, problem)
    sm_count = hardware.sm_count or 100
    size = item_bytes(problem.a.dtype) or 2
    out_size = item_bytes(problem.out.dtype) or 2
    shape = table.shapes
    M, N, B = (float(max(extent, 1)) for extent in (problem.M, problem.N, problem.B))
    K = max(problem.K, 1) / shape.k_split  # of one tile
    out = dict(zip(CROSS_COLUMNS, columns, strict=True))

    tiles_m, tiles_n = np.ceil(M / shape.block_m), np.ceil(N / shape.block_n)
    tiles = tiles_m * tiles_n * B * shape.k_split
    k_steps = np.ceil(K / shape.block_k)
    even_k = table.steps_through_k & table.divides(problem.K)
    shared = shape.stage_elements * size
    by_shared = np.floor((hardware.shared_memory_per_sm or 100_000) / (shared + 1024))
    by_shared = np.minimum(by_shared, 32, out=out["per_sm_by_shared"])
    by_registers = np.floor((hardware.registers_per_sm or 65536) / shape.registers)
    by_threads = np.floor((hardware.max_threads_per_sm or 2048) / shape.threads)
    per_sm = np.minimum(np.minimum(by_shared, by_registers), by_threads)
    per_sm = np.minimum(np.maximum(per_sm, 1), shape.most_per_sm, out=out["per_sm"])
    slots = sm_count * per_sm
    waves = tiles / slots
    whole_waves = np.ceil(waves)
    # The busiest SM works through its share of the tiles, several of them at once.
    tiles_of_busiest = np.ceil(tiles / sm_count)
    arithmetic = tiles_of_busiest * shape.area * K * (2 * sm_count / rate)
    tile_bytes = shape.sides * K * size
    all_tiles_bytes = tiles * tile_bytes
    l2 = all_tiles_bytes / (2.2 * bandwidth)
    dram = _dram_bytes(hardware, problem, table, tiles_m, tiles_n, np.minimum(slots, tiles), all_tiles_bytes)
    dram /= bandwidth
    depth = np.maximum(np.minimum(shape.stages, k_steps), 1)
    latency = whole_waves * k_steps * 0.7 / depth + whole_waves * 1.5
    bound = np.maximum(np.maximum(arithmetic, l2), dram)
    stored = B * M * N * out_size / bandwidth

    np.log2(tiles, out=out["log_tiles"])
    np.log2(waves, out=out["log_waves"])
    np.divide(waves, whole_waves, out=out["wave_fill"])
    np.log2(np.minimum(tiles / sm_count, 1), out=out["log_sm_fill"])
    np.minimum(whole_waves, 16, out=out["tail_waves"])
    np.log2(k_steps, out=out["log_k_steps"])
    out["even_k"][:] = even_k
    out["unrolled"][:] = even_k & (k_steps >= 4) & (k_steps <= 17)
    np.divide(M, tiles_m * shape.block_m, out=out["fill_m"])
    np.divide(N, tiles_n * shape.block_n, out=out["fill_n"])
    np.divide(K, k_steps * shape.block_k, out=out["fill_k"])
    np.log2(shared, out=out["log_shared"])
    np.divide(shared, hardware.shared_memory_per_block or 100_000, out=out["shared_share"])
    np.multiply(per_sm, shape.warps / 64, out=out["warps_per_sm"])
    out["log_accumulators"][:] = shape.log_accumulators
    out["log_tile_intensity"][:] = shape.log_intensity
    np.log2(depth * per_sm, out=out["log_steps_in_flight"])
    times = columns[CROSS_COLUMNS.index("arithmetic_us") : CROSS_COLUMNS.index("total_us") + 1]
    for row, time_us in zip(
        times, (arithmetic, l2, dram, latency, stored, bound + stored, bound + latency + stored), strict=True
    ):
        row[:] = time_us
    times += 0.1
    times /= least_us(hardware, problem)
    np.log2(times, out=times)


def _dram_bytes(
    hardware: Hardware,
    problem: MMShape,
    table: ChoiceTable,
    tiles_m: Column,
    tiles_n: Column,
    in_flight: Column,
    all_tiles_bytes: Column,
) -> Column:
    """What crosses DRAM: inputs once where they fit into the L2, else again for each group of tiles."""
    elements_of_a, elements_of_b, _ = problem.matrix_elements
    once = float(elements_of_a * item_bytes(problem.a.dtype) + elements_of_b * item_bytes(problem.b.dtype))
    if once < (hardware.l2_bytes or 4e7) / 2:
        return np.full(len(table), once, dtype=np.float32)
    shape = table.shapes
    group = np.minimum(shape.group_m, tiles_m)
    columns_at_once = np.maximum(in_flight / np.maximum(group, 1), 1)
    rows_of_a = tiles_m * shape.block_m * np.ceil(tiles_n / columns_at_once)
    columns_of_b = tiles_n * shape.block_n * np.ceil(tiles_m / group)
    again = (rows_of_a + columns_of_b) * (float(problem.B * problem.K) * (item_bytes(problem.a.dtype) or 2))
    read: Column = np.maximum(np.minimum(again, all_tiles_bytes), once)
    return read


def _leading(strides: tuple[int, ...]) -> int:
    """The stride of a matrix's dimension that is not contiguous."""
    return max(strides[-2:])
