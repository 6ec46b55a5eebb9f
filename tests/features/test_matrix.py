"""Features: their values by hand, what they depend on, and that they are always numbers."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from diode.features import COLUMNS, ChoiceTable, feature_matrix, least_us
from diode.types import (
    AtenChoice,
    Choice,
    DecomposeKConfig,
    Hardware,
    MMShape,
    Operand,
    OtherChoice,
    PersistentTMAConfig,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

PROBLEM = MMShape.of("addmm", 500, 1024, 768, layout="NT")
UNKNOWN_GPU = Hardware("a GPU that tells nothing", "cuda")


def tiled(m: int, n: int, k: int, stages: int = 3, warps: int = 4, group: int = 8) -> TritonGEMMConfig:
    return TritonGEMMConfig("triton::mm", m, n, k, stages, warps, group)


def persistent(m: int, n: int, k: int, stages: int = 3, warps: int = 8) -> PersistentTMAConfig:
    return PersistentTMAConfig("triton::mm_persistent_tma", m, n, k, stages, warps, True, False, 132)


CHOICES: list[Choice] = [
    tiled(128, 128, 64, stages=3, warps=8),
    tiled(64, 32, 80, stages=1, warps=2),
    persistent(128, 256, 64, stages=3),
    AtenChoice("addmm"),
    AtenChoice("bias_addmm"),
    DecomposeKConfig(16),
    OtherChoice("a backend of tomorrow", "its kernel"),
]


def row(choice: Choice, problem: MMShape = PROBLEM, hardware: Hardware = H200) -> dict[str, float]:
    return dict(zip(COLUMNS, feature_matrix(hardware, problem, ChoiceTable.of([choice]))[0].tolist(), strict=True))


def test_the_least_time_is_arithmetic_or_traffic_and_a_microsecond_to_start() -> None:
    arithmetic = MMShape.of("mm", 4096, 4096, 4096)
    assert least_us(H200, arithmetic) == pytest.approx(2 * 4096**3 / 989.4e6 + 1)
    traffic = MMShape.of("mm", 1, 4096, 4096, dtype="float16")
    assert least_us(H200, traffic) == pytest.approx(2 * (4096 + 4096**2 + 4096) / 4814.304e3 + 1)
    tf32 = MMShape.of("mm", 4096, 4096, 4096, dtype="float32", allow_tf32=True)
    assert least_us(H200, tf32) == pytest.approx(2 * 4096**3 / 494.7e6 + 1)


def test_facts_of_the_problem() -> None:
    found = row(CHOICES[0])
    elements = 500 * 768 + 768 * 1024 + 500 * 1024
    assert found["log_m"] == pytest.approx(math.log2(500))
    assert found["log_flops"] == pytest.approx(math.log2(2 * 500 * 1024 * 768))
    assert found["log_bytes"] == pytest.approx(math.log2(2 * elements))
    assert found["log_intensity"] == pytest.approx(math.log2(500 * 1024 * 768 / elements))
    assert found["log_least_us"] == pytest.approx(math.log2(least_us(H200, PROBLEM)))
    assert (found["a_transposed"], found["b_transposed"], found["has_bias"], found["is_batched"]) == (0, 1, 1, 0)
    arithmetic, traffic = 2 * 500 * 1024 * 768 / 989.4e6, 2 * elements / 4814.304e3
    assert found["memory_bound"] == pytest.approx(traffic / (traffic + arithmetic))


def test_facts_of_a_tile_on_a_problem() -> None:
    """128 x 128 x 64 with three stages and eight warps: 4 x 8 tiles of 12 steps, two stages in shared memory."""
    found = row(CHOICES[0])
    assert found["log_tiles"] == 5
    assert found["log_k_steps"] == pytest.approx(math.log2(12))
    assert (found["even_k"], found["unrolled"]) == (1, 1)
    assert found["fill_m"] == pytest.approx(500 / 512)
    assert (found["fill_n"], found["fill_k"]) == (1, 1)
    shared = (128 + 128) * 64 * 2 * 2
    assert found["log_shared"] == math.log2(shared)
    assert found["shared_share"] == pytest.approx(shared / 232448)
    assert found["per_sm_by_shared"] == 233472 // (shared + 1024) == 3
    # 64 accumulators a thread and some: two blocks of 256 threads share the registers of an SM.
    assert found["log_accumulators"] == 6
    assert found["per_sm"] == 65536 // ((64 * 1.3 + 40) * 256) == 2
    assert found["warps_per_sm"] == 2 * 8 / 64
    assert found["log_waves"] == pytest.approx(math.log2(32 / (132 * 2)))
    assert found["wave_fill"] == pytest.approx(32 / (132 * 2))
    assert found["tail_waves"] == 1
    assert found["log_sm_fill"] == pytest.approx(math.log2(32 / 132))
    assert found["log_tile_intensity"] == 6
    assert found["log_steps_in_flight"] == pytest.approx(math.log2(3 * 2))


def test_times_are_told_as_multiples_of_the_least_time() -> None:
    found = row(CHOICES[0])
    least = least_us(H200, PROBLEM)
    arithmetic = 2 * 128 * 128 * 768 / (989.4e6 / 132)
    l2 = 32 * (128 + 128) * 768 * 2 / (2.2 * 4814.304e3)
    dram = 2 * (500 * 768 + 768 * 1024) / 4814.304e3
    latency = 12 * 0.7 / 3 + 1.5
    stored = 500 * 1024 * 2 / 4814.304e3
    bound = max(arithmetic, l2, dram)
    for name, time_us in {
        "arithmetic_us": arithmetic,
        "l2_us": l2,
        "dram_us": dram,
        "latency_us": latency,
        "stored_us": stored,
        "bound_us": bound + stored,
        "total_us": bound + latency + stored,
    }.items():
        assert found[name] == pytest.approx(math.log2((time_us + 0.1) / least), abs=1e-5), name


def test_a_ragged_k_and_a_persistent_kernel_are_seen() -> None:
    ragged = row(CHOICES[1])
    assert (ragged["even_k"], ragged["unrolled"]) == (0, 0)
    assert ragged["fill_k"] == pytest.approx(768 / 800)
    # One stage is held whole, and a persistent kernel holds all of its stages, one block an SM.
    assert ragged["log_shared"] == pytest.approx(math.log2((64 + 32) * 80 * 2))
    whole = row(CHOICES[2])
    assert whole["log_shared"] == pytest.approx(math.log2((128 + 256) * 64 * 2 * 3))
    assert whole["per_sm"] == 1


def test_large_operands_are_read_again_for_each_group_of_tiles() -> None:
    large = MMShape.of("mm", 16384, 16384, 4096)
    apart, together = (row(tiled(128, 128, 64, warps=8, group=group), large) for group in (1, 16))
    assert apart["dram_us"] > together["dram_us"] + 0.5
    small = MMShape.of("mm", 512, 512, 512)
    assert row(tiled(64, 64, 64, group=1), small)["dram_us"] == row(tiled(64, 64, 64, group=8), small)["dram_us"]


def test_a_librarys_kernel_fits_the_device_in_any_precision() -> None:
    for dtype in ("bfloat16", "float32"):
        problem = MMShape.of("addmm", 4096, 4096, 4096, dtype=dtype)
        assert row(AtenChoice("addmm"), problem)["shared_share"] < 0.1


def strided(**changes: Any) -> MMShape:
    return msgspec.structs.replace(PROBLEM, **changes)


OTHERWISE = {
    "float16": MMShape.of("addmm", 500, 1024, 768, layout="NT", dtype="float16"),
    "float32": MMShape.of("addmm", 500, 1024, 768, layout="NT", dtype="float32"),
    "tf32": MMShape.of("addmm", 500, 1024, 768, layout="NT", dtype="float32", allow_tf32=True),
    "NN": MMShape.of("addmm", 500, 1024, 768, layout="NN"),
    "TN": MMShape.of("addmm", 500, 1024, 768, layout="TN"),
    "TT": MMShape.of("addmm", 500, 1024, 768, layout="TT"),
    "without bias": MMShape.of("mm", 500, 1024, 768, layout="NT"),
    "matrix as bias": MMShape.of("addmm", 500, 1024, 768, layout="NT", bias="matrix"),
    "batched": MMShape.of("baddbmm", 500, 1024, 768, layout="NT"),
    "batched without bias": MMShape.of("bmm", 500, 1024, 768, layout="NT"),
    "larger batch": MMShape.of("bmm", 500, 1024, 768, B=2, layout="NT"),
    "unaligned A": strided(a=Operand("bfloat16", (769, 1))),
    "unaligned B": strided(b=Operand("bfloat16", (1, 769))),
    "unaligned output": strided(out=Operand("bfloat16", (1025, 1))),
    "wider output": strided(out=Operand("float32", (1024, 1))),
    "other M": MMShape.of("addmm", 501, 1024, 768, layout="NT"),
    "other N": MMShape.of("addmm", 500, 1032, 768, layout="NT"),
    "other K": MMShape.of("addmm", 500, 1024, 776, layout="NT"),
}


def test_whatever_makes_a_problem_another_one_changes_its_features() -> None:
    seen = {"usual": tuple(row(CHOICES[0]).values())}
    seen |= {name: tuple(row(CHOICES[0], problem).values()) for name, problem in OTHERWISE.items()}
    assert len(set(seen.values())) == len(seen), "two of them look alike"


def test_every_field_of_a_tile_changes_its_features() -> None:
    large = MMShape.of("mm", 16384, 16384, 4096)
    others: list[Choice] = [
        tiled(128, 64, 32),
        tiled(64, 128, 32),
        tiled(128, 128, 32),
        tiled(128, 64, 64),
        tiled(128, 64, 32, stages=4),
        tiled(128, 64, 32, warps=8),
        tiled(128, 64, 32, group=1),
        persistent(128, 64, 32, warps=4),
        AtenChoice("addmm"),
        AtenChoice("bias_addmm"),
        DecomposeKConfig(2),
        DecomposeKConfig(4),
        OtherChoice("backend", "kernel"),
    ]
    matrix = feature_matrix(H200, large, ChoiceTable.of(others))
    assert len({tuple(values) for values in matrix.tolist()}) == len(others)


def test_rows_do_not_depend_on_one_another() -> None:
    table = ChoiceTable.of(CHOICES)
    whole = feature_matrix(H200, PROBLEM, table)
    assert whole.shape == (len(CHOICES), len(COLUMNS))
    assert whole.dtype == np.float32
    for number, choice in enumerate(CHOICES):
        np.testing.assert_array_equal(whole[number], feature_matrix(H200, PROBLEM, ChoiceTable.of([choice]))[0])


def test_the_same_question_has_the_same_answer_to_the_last_bit() -> None:
    table = ChoiceTable.of(CHOICES)
    first = feature_matrix(H200, PROBLEM, table)
    feature_matrix(UNKNOWN_GPU, OTHERWISE["tf32"], table)
    np.testing.assert_array_equal(first, feature_matrix(H200, PROBLEM, table))


def test_no_choices_are_no_rows() -> None:
    assert feature_matrix(H200, PROBLEM, ChoiceTable.of([])).shape == (0, len(COLUMNS))


@pytest.mark.parametrize("hardware", [H200, UNKNOWN_GPU], ids=str)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (0, 5, 7), (3, 4, 0), (1, 2**30, 1), (2**20, 2**20, 2**20), (1, 1, 2**30)]
)
def test_extreme_problems_give_numbers(hardware: Hardware, sizes: tuple[int, int, int]) -> None:
    table = ChoiceTable.of([*CHOICES, tiled(16, 16, 16, stages=0, warps=1), tiled(512, 512, 512, stages=6, warps=16)])
    for dtype in ("bfloat16", "float32", "float8_e4m3fn", "a_type_of_tomorrow"):
        with np.errstate(all="raise"):
            matrix = feature_matrix(hardware, MMShape.of("mm", *sizes, dtype=dtype), table)
        assert np.isfinite(matrix).all(), [COLUMNS[n] for n in np.flatnonzero(~np.isfinite(matrix).all(axis=0))]
