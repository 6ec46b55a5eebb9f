"""Files of every format that were cut, damaged, or are something else altogether."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import msgspec
import pytest

from diode.errors import FileFormatError
from diode.storage import DATASET_SUFFIXES, read_dataset, write_dataset
from diode.types import Dataset

every_format = pytest.mark.parametrize("suffix", DATASET_SUFFIXES)


def exact(dataset: Dataset) -> list[bytes]:
    return [msgspec.json.encode(measurement) for measurement in dataset]


@pytest.fixture
def written(sample: Dataset, tmp_path: Path, suffix: str) -> bytes:
    path = tmp_path / f"whole{suffix}"
    write_dataset(sample, path)
    content = path.read_bytes()
    path.unlink()
    return content


@every_format
def test_a_file_that_was_cut_anywhere_is_refused(suffix: str, written: bytes, refused) -> None:
    step = 1 if suffix != ".parquet" else 29
    for length in sorted({*range(0, len(written), step), *range(40), *range(len(written) - 40, len(written))}):
        assert refused(f"cut{suffix}", written[:length]), length


@every_format
def test_a_flipped_bit_is_found_or_was_in_nothing_that_is_read(
    suffix: str, written: bytes, sample: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / f"flipped{suffix}"
    expected = exact(sample)
    found = 0
    chance = random.Random(5)
    places = range(0, len(written), 3 if suffix != ".parquet" else 11)
    for place in places:
        damaged = bytearray(written)
        damaged[place] ^= 1 << chance.randrange(8)
        path.unlink(missing_ok=True)  # to cut a file off and write it anew may wait for the disk
        path.write_bytes(damaged)
        try:
            assert exact(read_dataset(path)) == expected, place
        except FileFormatError:
            found += 1
        assert path.read_bytes() == damaged
    # Of so small a Parquet file most is its description of itself: who wrote it, the least and greatest value.
    # In msgpack a NaN that stands for «not known» has many forms.
    assert found > (0.3 if suffix == ".parquet" else 0.95) * len(places)
    assert list(tmp_path.iterdir()) == [path]


@every_format
def test_bytes_taken_out_or_put_in_are_found(suffix: str, written: bytes, refused) -> None:
    chance = random.Random(6)
    for _ in range(60):
        start, length = chance.randrange(8, len(written) - 70), chance.choice([1, 2, 8, 64])
        assert refused(f"short{suffix}", written[:start] + written[start + length :])
        assert refused(f"long{suffix}", written[:start] + chance.randbytes(length) + written[start:])


@every_format
@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\0" * 4096, b"PAR1", b"PAR1PAR1", b"[]", b"null", b"\xff\xfe{\x00}\x00", b"{}", b"PK\x03\x04" * 20],
)
def test_something_else_is_refused(suffix: str, content: bytes, refused) -> None:
    assert refused(f"other{suffix}", content)


class Runs:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@every_format
def test_a_pickle_is_refused_and_not_run(suffix: str, refused, tmp_path: Path) -> None:
    marker = tmp_path.parent / f"{tmp_path.name} was run"
    hostile = pickle.dumps(Runs(marker))
    assert refused(f"pickle{suffix}", hostile)
    assert not marker.exists()
    pickle.loads(hostile)
    assert marker.exists()
    marker.unlink()


@every_format
def test_another_formats_file_is_refused(suffix: str, written: bytes, refused) -> None:
    for other in DATASET_SUFFIXES:
        if other != suffix:
            assert refused(f"disguised{other}", written)


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
def test_deep_nesting_is_refused(depth: int, refused) -> None:
    deep = b"[" * depth + b"]" * depth
    assert refused("deep.json", b'{"problems": ' + deep + b"}")
    assert refused("deep.json", b'{"format": "diode-dataset", "version": 1, "problems": ' + deep + b"}")
    assert refused("deep.json", b'{"hardware": ' + deep + b', "version": 1}')
    assert refused("deep.json", deep)
    one_in_another = b"\x91" * depth + b"\xc0"
    assert refused("deep.msgpack", b"\x81\xa8problems" + one_in_another)
    assert refused("deep.msgpack", b"\x82\xa8hardware" + one_in_another + b"\xa7version\x01")
    assert refused("deep.msgpack", one_in_another)


@pytest.mark.parametrize("claim", [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_a_claim_of_four_billion_entries_is_refused(claim: bytes, refused) -> None:
    assert refused("huge.msgpack", b"\x83\xa6format\xaddiode-dataset\xa7version\x01\xa8problems" + claim)


def test_no_message_carries_a_files_control_characters(refused) -> None:
    name = "\x1b[2J\nall is well"
    hostile = {"hardware": {"g": {"operation": {name: {"solution": {name: {}}}}}}, "version": 1}
    for encoding, encode in (("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)):
        message = refused(f"hostile.{encoding}", encode(hostile))
        assert message.isprintable()
        assert r"\x1b[2J\nall is well" in message


def test_a_message_stays_short(refused) -> None:
    hostile = {"format": "x" * 10**6}
    assert len(refused("long.json", msgspec.json.encode(hostile))) < 1000
