"""The store that compiles append to: several writers at once, and whatever ends them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.learning.made_up import BY_INDUCTOR, HERE, LIBRARY, config, numbered, problem_of

from diode.errors import FileAccessError, FileFormatError
from diode.learning.store import Store, StoreWriter
from diode.types import Failure, Measurement, Timing

ROOT = Path(__file__).parents[2]


def write(folder: Path, *numbers: int) -> Path:
    """Into a file of their own."""
    before = set(folder.glob("*")) if folder.exists() else set()
    writer = StoreWriter(folder)
    for number in numbers:
        writer.append(numbered(number))
    writer.close()
    (file,) = set(folder.glob("*")) - before
    return file


def numbers_in(folder: Path) -> list[int]:
    return sorted(tuned.problem.M // 16 - 1 for tuned in Store.read(folder).autotunings)


def running(program: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_what_is_appended_comes_back_as_measurements(tmp_path):
    write(tmp_path / "a new" / "folder", 0)
    store = Store.read(tmp_path / "a new" / "folder")
    assert list(store.dataset()) == [
        Measurement(problem_of(16), LIBRARY, HERE, BY_INDUCTOR, timing=Timing(100.0)),
        Measurement(problem_of(16), config(64), HERE, BY_INDUCTOR, failure=Failure("unknown")),
    ]
    assert store.damages == ()


def test_a_folder_that_is_not_there_or_holds_other_files_is_an_empty_store(tmp_path):
    assert Store.read(tmp_path / "nowhere") == Store()
    (tmp_path / "notes.txt").write_text("mine")
    assert Store.read(tmp_path) == Store()
    assert Store.read_whole(tmp_path).digest == ""
    with pytest.raises(FileAccessError, match=r"nowhere: no such folder; name the one that DIODE_LEARN named"):
        Store.read_whole(tmp_path / "nowhere")


def test_nothing_is_made_before_there_is_something_to_keep(tmp_path):
    StoreWriter(tmp_path / "store").close()
    assert not (tmp_path / "store").exists()


def test_the_digest_is_of_the_records_and_not_of_how_they_lie(tmp_path):
    write(tmp_path / "a", 0, 1, 2)
    write(tmp_path / "b", 2, 0)
    assert Store.read(tmp_path / "a").digest != Store.read(tmp_path / "b").digest
    shutil.copy(write(tmp_path / "b", 1), tmp_path / "b" / "copy.learned")
    assert Store.read(tmp_path / "a") == Store.read(tmp_path / "b")
    assert numbers_in(tmp_path / "b") == [0, 1, 2]


WRITING = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.learning.made_up import numbered
from diode.learning.store import StoreWriter

writer, first = StoreWriter(Path(sys.argv[1])), int(sys.argv[2])
writer.append(numbered(first))
if os.fork() == 0:
    for number in range(first + 1, first + 50):
        writer.append(numbered(number))
    os._exit(0)
with ThreadPoolExecutor(4) as threads:
    list(threads.map(lambda number: writer.append(numbered(number)), range(first + 50, first + 150)))
os.wait()
"""


def test_processes_threads_and_forks_that_append_at_once_lose_nothing(tmp_path):
    processes = [running(WRITING, str(tmp_path), str(150 * number)) for number in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert numbers_in(tmp_path) == list(range(450))
    assert Store.read_whole(tmp_path).damages == ()
    assert len(list(tmp_path.iterdir())) == 6


APPENDING = """
import sys
from pathlib import Path
from tests.learning.made_up import numbered
from diode.learning.store import StoreWriter

writer = StoreWriter(Path(sys.argv[1]))
for number in range(100_000):
    writer.append(numbered(number))
    print(number, flush=True)
"""


def test_a_kill_loses_nothing_that_was_appended(tmp_path):
    with running(APPENDING, str(tmp_path)) as process:
        assert process.stdout is not None
        appended = [int(process.stdout.readline()) for _ in range(100)]
        process.send_signal(signal.SIGKILL)
        appended += [int(line) for line in process.stdout if line.endswith("\n")]
    found = numbers_in(tmp_path)
    assert found[: len(appended)] == appended
    assert len(found) <= len(appended) + 1
    Store.read_whole(tmp_path)


def test_what_a_kill_tore_is_passed_over_wherever_it_was_torn(tmp_path):
    first_ends = write(tmp_path / "alone", 1).stat().st_size
    folder = tmp_path / "store"
    write(folder, 0)
    file = write(folder, 1, 2)
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        assert numbers_in(folder) == ([0] if length < first_ends else [0, 1])
        assert Store.read_whole(folder).damages == ()


@pytest.mark.parametrize("place", [17, 40])
def test_a_damaged_record_is_told_and_the_others_are_read(tmp_path, place):
    file = write(tmp_path, 0, 1, 2)
    write(tmp_path, 3)
    content = bytearray(file.read_bytes())
    content[place] ^= 0x10
    file.write_bytes(content)
    store = Store.read(tmp_path)
    assert numbers_in(tmp_path) == [1, 2, 3]
    remedy = "restore the file from a copy, or move it out of the folder"
    assert store.damages == (f"{file}: damaged at byte 16, after 0 whole records; {remedy}",)
    with pytest.raises(FileFormatError, match="damaged at byte 16"):
        Store.read_whole(tmp_path)


def test_a_file_of_another_version_is_told(tmp_path):
    write(tmp_path, 0)
    (tmp_path / "other.learned").write_bytes(b"diode-learned-2\nwhatever")
    assert Store.read(tmp_path).damages == (
        f"{tmp_path / 'other.learned'}: not a store of this version; move it out of the folder",
    )
    assert numbers_in(tmp_path) == [0]


FULL = """
import resource, sys
from pathlib import Path
from tests.learning.made_up import numbered
from diode.learning.store import StoreWriter

writer = StoreWriter(Path(sys.argv[1]))
writer.append(numbered(0))
(file,) = Path(sys.argv[1]).iterdir()
size = file.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
refused = 0
for number in range(1, 4):
    try:
        writer.append(numbered(number))
    except OSError:
        refused += 1
assert file.stat().st_size == size
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.append(numbered(4))
print(refused)
"""


def test_where_there_is_no_room_no_half_record_stays_between_whole_ones(tmp_path):
    with running(FULL, str(tmp_path)) as process:
        assert process.communicate()[0] == "3\n"
    assert numbers_in(tmp_path) == [0, 4]
    Store.read_whole(tmp_path)
