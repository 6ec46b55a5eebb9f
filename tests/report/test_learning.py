"""The learning curve, measured and as a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.model.made_up import config, problem_of, timed

from diode.errors import FileAccessError, FileFormatError, UsageError
from diode.model.examples import split_by_twins
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.report.curve import LearningCurve, LearningPoint, encode_curve, read_curve
from diode.report.learning import CurveSettings, learning_curve
from diode.types import Dataset

QUICK = TrainingSettings(hidden=8, layers=1, members=1, epochs=1, batch_size=8, patience=1)
SETTINGS = CurveSettings(QUICK, shares=(0.3, 0.6, 1.0), seed=5)


@pytest.fixture(scope="module")
def reported() -> list[LearningPoint]:
    return []


@pytest.fixture(scope="module")
def curve(measured: Dataset, reported: list[LearningPoint]) -> LearningCurve:
    return learning_curve(measured, SETTINGS, reported.append)


def test_shares_grow_and_are_judged_by_problems_that_none_of_them_has(
    curve: LearningCurve, measured: Dataset, reported: list[LearningPoint]
) -> None:
    truth = Truth.of(measured)
    held_out = int((split_by_twins(truth, 8, 5) == 0).sum())
    training = len(truth) - held_out
    assert curve.held_out == held_out
    assert [point.problems for point in curve.points] == [round(share * training) for share in SETTINGS.shares]
    assert list(curve.points) == reported
    sizes = [point.measurements for point in curve.points]
    assert sizes == sorted(set(sizes))
    judges = split_by_twins(truth, 8, 5) == 0
    assert sizes[-1] == sum(int((~m.failed).sum()) for m in truth.select(~judges).problems)
    assert all(0 < point.efficiency_at_1 <= point.efficiency_at_3 <= 100 for point in curve.points)


def test_minutes_are_those_of_the_timed_repeats_unless_they_are_given(curve: LearningCurve, measured: Dataset) -> None:
    truth = Truth.of(measured)
    judges = {m.problem for m in truth.select(split_by_twins(truth, 8, 5) == 0).problems}
    minutes = {True: 0.0, False: 0.0}
    for row in measured:
        if row.timing is not None:
            minutes[row.problem in judges] += row.timing.time_us * (row.timing.repeats or 1) / 60e6
    assert curve.minutes_are == "timed repeats"
    assert curve.points[-1].gpu_minutes == pytest.approx(minutes[False])
    given = learning_curve(measured, CurveSettings(QUICK, shares=(0.2, 1.0), gpu_minutes=30.0, seed=5))
    assert given.minutes_are == "as given"
    assert given.points[-1].gpu_minutes == pytest.approx(30.0 * minutes[False] / (minutes[True] + minutes[False]))


def test_too_few_problems_are_refused() -> None:
    rows = [timed(problem_of(size), config(block), 1.0 * block) for size in (64, 128, 256) for block in (16, 32)]
    with pytest.raises(UsageError, match="3 measured GEMM problems are too few for a learning curve"):
        learning_curve(Dataset.of(rows), SETTINGS)


def test_a_curve_goes_to_a_file_and_comes_back(curve: LearningCurve, tmp_path: Path) -> None:
    path = tmp_path / "learning_curve.json"
    path.write_bytes(encode_curve(curve))
    assert read_curve(path) == curve


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"[]", "curve.json: "),
        (lambda content: content.replace(b"diode-learning-curve", b"diode-model"), "is no learning curve of schema 1"),
        (lambda content: content.replace(b'"schema": 1', b'"schema": 2'), "is no learning curve of schema 1"),
        (lambda content: content.replace(b'"held_out"', b'"left_out"'), "left_out"),
        (lambda content: content[: len(content) // 2], "curve.json: "),
    ],
)
def test_what_is_no_curve_is_refused(curve: LearningCurve, tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "curve.json"
    changed = change(encode_curve(curve))  # type: ignore[operator]
    assert changed != encode_curve(curve)
    path.write_bytes(changed)
    with pytest.raises(FileFormatError, match=message):
        read_curve(path)


def test_a_missing_curve_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"curve\.json: cannot be read"):
        read_curve(tmp_path / "curve.json")


def test_an_impossible_point_is_refused(curve: LearningCurve, tmp_path: Path) -> None:
    plain = msgspec.to_builtins(curve)
    plain["points"][0]["efficiency_at_1"] = 100.001
    (tmp_path / "curve.json").write_bytes(msgspec.json.encode(plain))
    with pytest.raises(FileFormatError, match="efficiency_at_1"):
        read_curve(tmp_path / "curve.json")
