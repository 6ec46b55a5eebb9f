from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.errors import FileAccessError, FileFormatError, InvalidRecordError, UsageError
from diode.storage import DATASET_SUFFIXES, read_dataset, read_datasets, write_dataset
from diode.storage.files import DATASET_FORMATS
from diode.types import (
    Dataset,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    OtherChoice,
    Timing,
    TimingMethod,
)

every_format = pytest.mark.parametrize("suffix", DATASET_SUFFIXES)


def exact(dataset: Dataset) -> list[bytes]:
    """Tells 1 from 1.0 and True, and 0.0 from -0.0, as == does not."""
    return [msgspec.json.encode(measurement) for measurement in dataset]


@every_format
@given(dataset=st.from_type(Dataset))
def test_what_is_read_is_exactly_what_was_written(suffix: str, dataset: Dataset) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"dataset{suffix}"
        write_dataset(dataset, path)
        read = read_dataset(path)
        again = path.with_stem("again")
        write_dataset(read, again)
        assert again.read_bytes() == path.read_bytes()
    assert exact(read) == exact(dataset)
    for name, column in vars(dataset.columns).items():
        assert getattr(read.columns, name).dtype == column.dtype
        np.testing.assert_array_equal(getattr(read.columns, name), column)


@every_format
def test_every_kind_survives(suffix: str, sample: Dataset, tmp_path: Path) -> None:
    path = tmp_path / f"sample{suffix}"
    write_dataset(sample, path)
    read = read_dataset(path)
    assert exact(read) == exact(sample)
    assert {type(choice) for choice in read.choices} == {type(choice) for choice in sample.choices}
    assert {type(problem) for problem in read.problems} == {type(problem) for problem in sample.problems}
    assert list(tmp_path.iterdir()) == [path]


@every_format
def test_no_measurements_are_a_dataset_too(suffix: str, tmp_path: Path) -> None:
    write_dataset(Dataset.of([]), tmp_path / f"empty{suffix}")
    read = read_dataset(tmp_path / f"empty{suffix}")
    assert len(read) == len(read.problems) == len(read.failures) == 0


@every_format
def test_a_kind_that_this_version_does_not_know_is_kept_word_for_word(suffix: str, tmp_path: Path) -> None:
    words = ("text", "", True, 1, 1.0, False, 0, 0.0, None, 2**64 - 1, -(2**63), 1e300, "1")
    choices = [OtherChoice("a backend", "a name", (("is", word),)) for word in words]
    circumstances = (Environment(Hardware("gpu", "cuda")), TimingMethod("t", "min"), Timing(1.0))
    dataset = Dataset.of(Measurement(MMShape.of("mm", 8, 8, 8), choice, *circumstances) for choice in choices)
    write_dataset(dataset, tmp_path / f"other{suffix}")
    read = [row.choice.fields[0][1] for row in read_dataset(tmp_path / f"other{suffix}")]
    assert list(map(repr, read)) == list(map(repr, words))


@every_format
def test_whole_numbers_in_place_of_fractions_do_not_spoil_a_file(suffix: str, tmp_path: Path) -> None:
    gpu = Hardware("gpu", "cuda", memory_bandwidth_gbs=4800, peak_tflops=(("bfloat16", 990),))
    method = TimingMethod("t", "min", overhead_us=0)
    choice = OtherChoice("a", "b")
    dataset = Dataset.of([Measurement(MMShape.of("mm", 8, 8, 8), choice, Environment(gpu), method, Timing(3))])
    write_dataset(dataset, tmp_path / f"whole{suffix}")
    assert list(read_dataset(tmp_path / f"whole{suffix}")) == list(dataset)


@every_format
@pytest.mark.parametrize(
    ("field", "record", "place"),
    [
        ("timing", Timing(-1.0), r"columns.time_us\[0\]: -1.0 is out of range"),
        ("timing", Timing(float("nan")), r"columns.time_us\[0\]: nan"),
        ("timing", Timing(float("inf")), r"columns.time_us\[0\]: inf is not finite"),
        ("timing", Timing(1.0, spread=-0.5), r"columns.spread\[0\]: -0.5 is out of range"),
        ("timing", Timing(1.0, repeats=0), r"columns.repeats\[0\]: 0 is out of range"),
        ("choice", OtherChoice("b", "n", (("rate", float("nan")),)), r"choices\[0\]"),
        ("choice", OtherChoice("", "n"), r"choices\[0\]: backend: Expected `str` of length >= 1"),
        ("problem", MMShape.of("mm", 2**48, 8, 8), r"problems\[0\]: M: Expected `int` <= 281474976710655"),
        ("environment", Environment(Hardware("g", "cuda", memory_bandwidth_gbs=float("inf"))), r"environments\[0\]"),
        ("method", TimingMethod("t", "mean"), r"methods\[0\]: statistic: Invalid enum value 'mean'"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(
    suffix: str, field: str, record: object, place: str, sample: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / f"kept{suffix}"
    path.write_bytes(b"what was there before")
    wrong = msgspec.structs.replace(next(iter(sample)), **{field: record})
    with pytest.raises(InvalidRecordError, match=place):
        write_dataset(Dataset.of([wrong]), path)
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_message_that_is_too_long_is_not_written(sample: Dataset, tmp_path: Path) -> None:
    failed = msgspec.structs.replace(next(iter(sample)), timing=None, failure=Failure("crash", "x" * 501))
    with pytest.raises(InvalidRecordError, match=r"failures\[0\]: message: Expected `str` of length <= 500"):
        write_dataset(Dataset.of([failed]), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_all_formats_hold_the_same_under_the_same_checksum(sample: Dataset, tmp_path: Path) -> None:
    for suffix in DATASET_SUFFIXES:
        write_dataset(sample, tmp_path / f"a{suffix}")
    checksum = msgspec.json.decode((tmp_path / "a.json").read_bytes())["checksum"]
    assert checksum.startswith("sha256:")
    for suffix in (".msgpack", ".parquet"):
        assert checksum.encode() in (tmp_path / f"a{suffix}").read_bytes()


def test_a_format_may_tell_what_a_name_does_not(sample: Dataset, tmp_path: Path) -> None:
    for file_format in DATASET_FORMATS:
        write_dataset(sample, tmp_path / "nameless", file_format)
        assert list(read_dataset(tmp_path / "nameless", file_format)) == list(sample)


@pytest.mark.parametrize(
    ("name", "file_format", "message"),
    [
        ("a.json", "parquet", "the suffix contradicts the format parquet"),
        ("a.txt", None, "'txt' is no format of datasets; known are .json, .msgpack, .parquet"),
        ("a", None, "has no suffix that tells the format"),
        ("a", "yaml", "'yaml' is no format of datasets"),
    ],
)
def test_a_format_that_cannot_be_told_is_refused(name, file_format, message, sample: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        write_dataset(sample, tmp_path / name, file_format)
    with pytest.raises(UsageError, match=message):
        read_dataset(tmp_path / name, file_format)
    assert not list(tmp_path.iterdir())


@every_format
def test_a_missing_file_and_a_folder_in_its_place_are_named(suffix: str, sample: Dataset, tmp_path: Path) -> None:
    missing, folder = tmp_path / f"missing{suffix}", tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(FileAccessError, match=rf"missing{suffix}: cannot be read: .*No such file"):
        read_dataset(missing)
    with pytest.raises(FileAccessError, match=rf"folder{suffix}: cannot be read: "):
        read_dataset(folder)
    with pytest.raises(FileAccessError, match=rf"folder{suffix}: cannot be written: Is a directory"):
        write_dataset(sample, folder)
    assert list(tmp_path.iterdir()) == [folder]
    assert not list(folder.iterdir())


def test_a_folder_is_read_file_after_file(sample: Dataset, tmp_path: Path) -> None:
    first, second, third = sample.select(np.array([3, 0])), sample.select(np.array([1])), sample.select(np.array([2]))
    write_dataset(second, tmp_path / "b.json")
    write_dataset(first, tmp_path / "a.parquet")
    write_dataset(third, tmp_path / "c.msgpack")
    (tmp_path / ".hidden.json").write_text("not read")
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "folder.json").mkdir()
    assert list(read_datasets(tmp_path)) == [*first, *second, *third]
    assert list(read_datasets(tmp_path, ["json", ".msgpack"])) == [*second, *third]
    assert list(read_datasets(tmp_path / "b.json")) == list(second)


def test_a_folder_without_datasets_or_with_a_bad_one_is_an_error(sample: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"holds no .json, .msgpack, .parquet file"):
        read_datasets(tmp_path)
    write_dataset(sample, tmp_path / "a.json")
    with pytest.raises(FileAccessError, match=r"holds no .parquet file"):
        read_datasets(tmp_path, ["parquet"])
    with pytest.raises(UsageError, match=r"'.csv' is none of"):
        read_datasets(tmp_path, ["csv"])
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"b.json: format"):
        read_datasets(tmp_path)


def test_json_that_says_it_is_something_else_may_lie_beside_the_datasets_of_a_folder(
    sample: Dataset, tmp_path: Path
) -> None:
    others = {
        "card": '{"format": "diode-model", "schema": 1}',
        "solution": '{"version": 1, "name": "best", "solution": []}',
        "flat": '{"name": "best", "configs": [{"M": 8}]}',
        "public": '{"config": []}',
        "shapes": '{"operations": {}}',
        "analysis": '{"problems": 3, "rankings": {}}',
    }
    for name, text in others.items():
        (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(FileAccessError, match=r"holds no data set: analysis.json, card.json, .* are something else"):
        read_datasets(tmp_path)
    write_dataset(sample, tmp_path / "data.json")
    assert list(read_datasets(tmp_path)) == list(sample)
    with pytest.raises(FileFormatError, match=r"card.json: format: is 'diode-model'"):
        read_datasets(tmp_path / "card.json")
    (tmp_path / "torn.json").write_text('{"format": "diode-model", "sch')
    with pytest.raises(FileFormatError, match=r"torn.json"):
        read_datasets(tmp_path)
