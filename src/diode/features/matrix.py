"""Hardware, problem and choices as one matrix: a row per choice, a column per feature, vectorised over choices.

The columns are what decides the time of a GEMM kernel: how tiles fill the GPU, what a tile costs in arithmetic, in
traffic and in latency, what fits on an SM at once, and what the layout of the operands allows. Times in them are
estimates in microseconds from the rates of the hardware, relative to the least time that the problem can take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from diode.features.table import CHOICE_COLUMNS, PERSISTENT, ChoiceTable
from diode.types import Hardware, MMShape
from diode.types.dtypes import item_bytes

SCHEMA_VERSION: Final = 1

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
    "accumulators_per_thread",
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
    for row, column in zip(columns[-len(CROSS_COLUMNS) :], _cross_columns(hardware, problem, table), strict=True):
        row[:] = column
    matrix: NDArray[np.float32] = columns.T
    return matrix


def _rates(hardware: Hardware, problem: MMShape) -> tuple[float, float]:
    """Operations and bytes per microsecond."""
    name = "tf32" if problem.allow_tf32 else problem.a.dtype
    tflops = dict(hardware.peak_tflops).get(name) or _FALLBACK_RATES.get(name, 20.0)
    return tflops * 1e6, (hardware.memory_bandwidth_gbs or _FALLBACK_BANDWIDTH) * 1e3


def _problem_row(hardware: Hardware, problem: MMShape) -> list[float]:
    rate, bandwidth = _rates(hardware, problem)
    arithmetic, traffic = problem.flops / rate, problem.min_bytes / bandwidth
    size = item_bytes(problem.a.dtype)
    a, b, out = (_leading(operand.strides) for operand in (problem.a, problem.b, problem.out))
    wide = 16 // max(size, 1)
    logs = [np.log2(max(value, 1)) for value in (problem.M, problem.N, problem.K, problem.B, problem.flops)]
    return [
        *logs,
        np.log2(max(problem.min_bytes, 1)),
        np.log2(max(problem.flops, 1) / max(problem.min_bytes, 1)),
        np.log2(least_us(hardware, problem)),
        traffic / (traffic + arithmetic),
        np.log2(max(problem.B * problem.M * problem.N, 1)),
        problem.layout[0] == "T",
        problem.layout[1] == "T",
        size,
        problem.a.dtype == "float16",
        problem.a.dtype == "float32" and not problem.allow_tf32,
        problem.allow_tf32,
        problem.bias is not None,
        problem.bias is not None and problem.bias.strides[-2] != 0,
        len(problem.a.strides) == 3,
        a % wide != 0,
        b % wide != 0,
        out % wide != 0,
    ]


def _cross_columns(hardware: Hardware, problem: MMShape, table: ChoiceTable) -> Iterator[NDArray[Any]]:
    rate, bandwidth = _rates(hardware, problem)
    sm_count = hardware.sm_count or 100
    size = item_bytes(problem.a.dtype) or 2
    out_size = item_bytes(problem.out.dtype) or 2
    bm, bn, bk = table.block_m, table.block_n, table.block_k
    persistent = table.kind == PERSISTENT
    M, N, K, B = float(problem.M), float(problem.N), float(problem.K), float(problem.B)

    tiles_m, tiles_n = np.ceil(M / bm), np.ceil(N / bn)
    tiles = tiles_m * tiles_n * B * table.k_split
    k_steps = np.ceil(K / table.k_split / bk)
    even_k = table.steps_through_k & (K % bk == 0)
    stage_bytes = (bm + bn) * bk * size
    shared = stage_bytes * np.maximum(table.stages - (table.stages > 1) * ~persistent, 1)
    shared_per_sm = float(hardware.shared_memory_per_sm or 100_000)
    by_shared = np.clip(np.floor(shared_per_sm / (shared + 1024)), 0, 32)
    accumulators = bm * bn / (table.warps * 32)
    registers = np.minimum(accumulators * 1.3 + 40, 255)
    by_registers = np.floor((hardware.registers_per_sm or 65536) / (registers * table.warps * 32))
    by_threads = np.floor((hardware.max_threads_per_sm or 2048) / (table.warps * 32))
    per_sm = np.clip(np.minimum(np.minimum(by_shared, by_registers), by_threads), 1, 32)
    per_sm = np.where(persistent, 1.0, per_sm)
    slots = sm_count * per_sm
    waves = tiles / slots
    whole_waves = np.ceil(waves)
    sm_fill = np.minimum(tiles / sm_count, 1.0)

    tile_flops = 2 * bm * bn * K / table.k_split
    # The busiest SM works through its share of the tiles, several of them at once.
    tiles_of_busiest = np.ceil(tiles / sm_count)
    arithmetic = tiles_of_busiest * tile_flops / (rate / sm_count)
    tile_bytes = (bm + bn) * (K / table.k_split) * size
    l2 = tiles * tile_bytes / (2.2 * bandwidth)
    group = np.minimum(table.group_m, tiles_m)
    in_flight = np.minimum(slots, tiles)
    group_columns = np.maximum(in_flight / np.maximum(group, 1), 1)
    reread = B * K * size * (tiles_m * bm * np.ceil(tiles_n / group_columns) + tiles_n * bn * np.ceil(tiles_m / group))
    once = problem.min_bytes - problem.M * problem.N * problem.B * out_size
    l2_bytes = float(hardware.l2_bytes or 4e7)
    dram = np.where(once < l2_bytes / 2, once, np.maximum(np.minimum(reread, tiles * tile_bytes), once)) / bandwidth
    stored = np.full(len(table), B * M * N * out_size / bandwidth)
    depth = np.maximum(np.minimum(table.stages, k_steps), 1)
    latency = whole_waves * k_steps * 0.7 / depth + whole_waves * 1.5
    bound = np.maximum(np.maximum(arithmetic, l2), dram)
    least = least_us(hardware, problem)

    yield np.log2(tiles)
    yield np.log2(waves)
    yield waves / whole_waves
    yield np.log2(sm_fill)
    yield np.minimum(whole_waves, 16.0)
    yield np.log2(k_steps)
    yield even_k
    yield even_k & (k_steps >= 4) & (k_steps <= 17)
    yield M / (tiles_m * bm)
    yield N / (tiles_n * bn)
    yield K / table.k_split / (k_steps * bk)
    yield np.log2(shared)
    yield shared / float(hardware.shared_memory_per_block or 100_000)
    yield by_shared
    yield per_sm
    yield per_sm * table.warps / 64
    yield np.log2(accumulators)
    yield np.log2(bm * bn / (bm + bn))
    for time_us in (arithmetic, l2, dram, latency, stored, bound + stored, bound + latency + stored):
        yield np.log2((time_us + 0.1) / least)
    yield np.log2(depth * per_sm)


def _leading(strides: tuple[int, ...]) -> int:
    """The stride of a matrix's dimension that is not contiguous."""
    return max(strides[-2:])
