from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from diode.errors import FileAccessError
from diode.storage import DATASET_SUFFIXES, read_dataset, write_dataset
from diode.storage.atomic import replacing, write_atomically
from diode.types import Dataset

OLD, NEW = b"what was there", b"what comes" * 10_000

# Nameless files are Linux's; elsewhere, and on file systems without them, a named one is written and renamed.


@pytest.fixture
def nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


both_ways = pytest.mark.parametrize("nameless", [True, False], indirect=True, ids=["nameless", "named"])


@both_ways
@pytest.mark.parametrize("before", [None, OLD])
def test_the_new_content_takes_the_place_of_the_old(nameless: bool, before: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    write_atomically(path, NEW)
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


@both_ways
@pytest.mark.parametrize("failure", [ValueError("half-way"), KeyboardInterrupt(), OSError(28, "No space left")])
def test_a_write_that_fails_half_way_leaves_the_old(nameless: bool, failure: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def write_and_fail() -> None:
        with replacing(path) as file:
            file.write(NEW)
            file.flush()
            raise failure

    expected = FileAccessError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        write_and_fail()
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


@both_ways
def test_nobody_sees_a_part(nameless: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with replacing(path) as file:
        file.write(NEW)
        file.flush()
        assert path.read_bytes() == OLD
        visible = [entry for entry in tmp_path.iterdir() if entry != path]
        assert len(visible) == (0 if nameless else 1)
        assert all(entry.name.startswith(".") and entry.suffix == ".part" for entry in visible)
    assert path.read_bytes() == NEW


@both_ways
def test_who_may_read_it_is_for_the_users_umask_to_say(nameless: bool, tmp_path: Path) -> None:
    for mask, expected in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            write_atomically(tmp_path / f"{mask}", NEW)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}").stat().st_mode) == expected


@both_ways
def test_a_link_stays_a_link(nameless: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(OLD)
    link.symlink_to(target)
    write_atomically(link, NEW)
    assert link.is_symlink()
    assert target.read_bytes() == NEW
    assert list(target.parent.iterdir()) == [target]


@both_ways
def test_a_name_as_long_as_the_system_allows(nameless: bool, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomically(path, NEW)
    assert path.read_bytes() == NEW


@both_ways
def test_writers_of_one_file_at_a_time_each_write_it_whole(nameless: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([letter]) * 200_000 for letter in b"abcdef"]
    threads = [threading.Thread(target=write_atomically, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


@both_ways
def test_what_the_system_refuses_is_named(nameless: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(OLD)
    for path, reason in (
        (tmp_path / "missing" / "file", "No such file or directory"),
        (tmp_path / "folder", "Is a directory"),
        (tmp_path / "file" / "below", "Not a directory"),
    ):
        with pytest.raises(FileAccessError, match=f"^{path}: cannot be written: {reason}$"):
            write_atomically(path, NEW)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == OLD


KILLED = """
import os, sys
from pathlib import Path
if sys.argv[2] == "named" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
from diode.storage.atomic import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half of it" * 100_000)
    file.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("nameless", [True, False], ids=["nameless", "named"])
def test_a_process_that_is_killed_while_it_writes_leaves_the_old(
    nameless: bool, sample: Dataset, tmp_path: Path
) -> None:
    for suffix in DATASET_SUFFIXES:
        path = tmp_path / f"dataset{suffix}"
        write_dataset(sample, path)
        content = path.read_bytes()
        command = [sys.executable, "-c", KILLED, str(path), "nameless" if nameless else "named"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"written\n"
            process.kill()
            assert process.wait() == -signal.SIGKILL
        assert path.read_bytes() == content
        assert list(read_dataset(path)) == list(sample)
        left = [entry for entry in tmp_path.iterdir() if entry.suffix not in DATASET_SUFFIXES]
        if nameless:
            assert not left
        else:
            assert [entry.suffix for entry in left] == [".part"]
            assert left[0].name.startswith(f".dataset{suffix}")
            left[0].unlink()
