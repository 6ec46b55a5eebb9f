"""Choices as columns: parts and joins of tables say what their whole says."""

from __future__ import annotations

import numpy as np
import pytest

from diode.features import COLUMNS, ChoiceTable, feature_matrix
from diode.features.table import CHOICE_COLUMNS, LIBRARY, PERSISTENT, TILED
from diode.types import AtenChoice, Choice, DecomposeKConfig, MMShape, PersistentTMAConfig, TritonGEMMConfig
from diode.types.known_hardware import H200

PROBLEM = MMShape.of("mm", 2000, 1024, 96)
CHOICES: list[Choice] = [
    TritonGEMMConfig("triton::mm", 64, 32, 16, 3, 4),
    PersistentTMAConfig("triton::mm_persistent_tma", 128, 128, 64, 4, 8, True, True, 132),
    AtenChoice("mm"),
    DecomposeKConfig(4),
    TritonGEMMConfig("triton::mm", 256, 64, 48, 1, 8, group_m=4),
]


@pytest.fixture
def table() -> ChoiceTable:
    return ChoiceTable.of(CHOICES)


def test_columns_are_those_that_are_named(table: ChoiceTable) -> None:
    named = dict(zip(CHOICE_COLUMNS, table.columns, strict=True))
    assert table.kind.tolist()[:3] == [TILED, PERSISTENT, LIBRARY]
    assert named["is_persistent"].tolist() == [0, 1, 0, 0, 0]
    assert named["log_block_m"].tolist()[:2] == [6, 7]
    assert named["log_area_per_warp"][0] == 9
    assert named["log_k_split"][3] == 2
    assert named["one_stage"].tolist()[4] == 1
    assert named["tensor_core_rows"].tolist()[:2] == [1, 1]
    assert set(CHOICE_COLUMNS) < set(COLUMNS)


def test_blocks_that_divide_k(table: ChoiceTable) -> None:
    assert table.divides(96)[[0, 1, 4]].tolist() == [True, False, True]
    assert table.divides(2**53 + 1)[[0, 1, 4]].tolist() == [False, False, False]


@pytest.mark.parametrize("rows", [[3, 0], [], [True, False, False, True, True]], ids=str)
def test_a_part_of_a_table_gives_the_rows_of_the_whole(table: ChoiceTable, rows: list[int]) -> None:
    picked = np.array(rows, dtype=np.bool_ if True in rows else np.intp)
    whole = feature_matrix(H200, PROBLEM, table)
    np.testing.assert_array_equal(feature_matrix(H200, PROBLEM, table.take(picked)), whole[picked])


def test_joined_tables_give_the_rows_of_each(table: ChoiceTable) -> None:
    joined = ChoiceTable.joined([table, ChoiceTable.of(CHOICES[1:3])])
    whole = feature_matrix(H200, PROBLEM, ChoiceTable.of([*CHOICES, *CHOICES[1:3]]))
    np.testing.assert_array_equal(feature_matrix(H200, PROBLEM, joined), whole)
