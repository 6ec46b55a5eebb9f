"""The journal of a running collection: what it keeps, whatever ends the run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from diode.collection.journal import Journal, JournalEnvironment, JournalOutcome, JournalResult, journal_dataset
from diode.errors import CollectionError, FileFormatError
from diode.types import (
    AtenChoice,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)

HERE = Environment(Hardware("a GPU", "cuda", capability=(9, 0)), torch="2.13.0", taken="2026-01-31")
METHOD = TimingMethod("diode-sweep", "median", flush_bytes=1024, launch_hidden=True, overhead_us=0.5, kernel="family")
OF_LIBRARY = msgspec.structs.replace(METHOD, kernel="backend")
CONFIRMED = TimingMethod("diode-sweep", "median", kernel="static", round=2)
ATEN = AtenChoice("mm")
TRITON = TritonGEMMConfig("triton::mm", 64, 64, 32, num_stages=3, num_warps=4)


def problem(number: int) -> MMShape:
    return MMShape.of("mm", 16 * (number + 1), 32, 64)


def result(number: int, *, time_us: float = 10.0, method: TimingMethod = METHOD, final: bool = True) -> JournalResult:
    outcomes = (
        JournalOutcome(ATEN, Timing(time_us, min_us=time_us - 1, spread=0.01, repeats=7, clock_mhz=1980), None),
        JournalOutcome(TRITON, None, Failure("shared_memory", "too much")),
    )
    return JournalResult(problem(number), method, outcomes, final)


def write(path: Path, *results: JournalResult, plan: str = "plan") -> None:
    with Journal(path, plan) as journal:
        journal.append(JournalEnvironment(HERE))
        for each in results:
            journal.append(each)


def problems_in(path: Path) -> list[MMShape]:
    return list(journal_dataset(path).problems)


def test_what_is_appended_comes_back_as_a_dataset(tmp_path):
    path = tmp_path / "new folder" / "run.journal"
    with Journal(path, "plan") as journal:
        journal.append(JournalEnvironment(HERE))
        journal.append(result(0))
        expected = [
            Measurement(problem(0), ATEN, HERE, OF_LIBRARY, timing=Timing(10.0, 9.0, 0.01, 7, 1980)),
            Measurement(problem(0), TRITON, HERE, METHOD, failure=Failure("shared_memory", "too much")),
        ]
        assert list(journal.dataset()) == expected
        journal.append(result(1))
        assert len(journal.dataset()) == 4
    assert list(journal_dataset(path))[:2] == expected


def test_a_resumed_journal_knows_what_is_finished_and_goes_on(tmp_path):
    path = tmp_path / "run.journal"
    write(path, result(0), result(1, final=False))
    with Journal(path, "plan") as journal:
        assert journal.finished == {problem(0)}
        elsewhere = Environment(Hardware("another GPU", "cuda"))
        journal.append(JournalEnvironment(elsewhere))
        journal.append(result(2))
    measured_on = {row.problem: row.environment for row in journal_dataset(path)}
    assert measured_on == {problem(0): HERE, problem(1): HERE, problem(2): elsewhere}


def test_a_problem_measured_again_counts_once_and_its_rounds_each(tmp_path):
    path = tmp_path / "run.journal"
    write(path, result(0, time_us=10.0, final=False))
    write(path, result(0, time_us=20.0, final=False), result(0, time_us=30.0, method=CONFIRMED))
    times = {row.method.round: row.time_us for row in journal_dataset(path) if row.choice == ATEN}
    assert times == {METHOD.round: 20.0, CONFIRMED.round: 30.0}
    assert len(journal_dataset(path)) == 4


def test_a_torn_end_is_dropped_wherever_it_was_torn(tmp_path):
    path = tmp_path / "run.journal"
    write(path, result(0))
    kept = path.stat().st_size
    write(path, result(1))
    content = path.read_bytes()
    # the second run begins with the frame of its environment
    environment_end = kept + 8 + int.from_bytes(content[kept : kept + 4], "little")
    for length in range(environment_end, len(content)):
        path.write_bytes(content[:length])
        with Journal(path, "plan") as journal:
            assert journal.finished == {problem(0)}
        assert path.stat().st_size == environment_end
    write(path, result(2))
    assert problems_in(path) == [problem(0), problem(2)]


@pytest.mark.parametrize("tail", [bytes(7), bytes(8), bytes(4096), b"\xff" * 100])
def test_what_a_power_cut_leaves_at_the_end_is_dropped(tmp_path, tail):
    path = tmp_path / "run.journal"
    write(path, result(0))
    with path.open("ab") as file:
        file.write(tail)
    write(path, result(1))
    assert problems_in(path) == [problem(0), problem(1)]


def test_a_corrupt_last_frame_is_dropped(tmp_path):
    path = tmp_path / "run.journal"
    write(path, result(0), result(1))
    content = bytearray(path.read_bytes())
    content[-3] ^= 0x10
    path.write_bytes(content)
    with Journal(path, "plan") as journal:
        assert journal.finished == {problem(0)}


@pytest.mark.parametrize("place", [1, 3, 20], ids=["its length", "a length beyond the file", "its content"])
def test_a_corrupt_frame_before_whole_ones_is_refused_and_nothing_is_lost(tmp_path, place):
    path = tmp_path / "run.journal"
    write(path, result(0))
    damaged_at = path.stat().st_size
    write(path, result(1), result(2))
    content = bytearray(path.read_bytes())
    content[damaged_at + place] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"damaged at byte {damaged_at}.*cut it to {damaged_at} bytes"):
        Journal(path, "plan")
    assert path.read_bytes() == content
    with path.open("r+b") as file:  # the remedy that the message names
        file.truncate(damaged_at)
    assert problems_in(path) == [problem(0)]


def test_a_journal_of_another_plan_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "run.journal"
    write(path, result(0), plan="these problems")
    content = path.read_bytes()
    with pytest.raises(CollectionError, match=r"run\.journal: belongs to a collection with other arguments.*--output"):
        Journal(path, "those problems")
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"PAR1 something else", b"diode-journal-0\n", b"diode-journal-1\n"])
def test_a_file_that_is_no_journal_is_refused(tmp_path, content):
    path = tmp_path / "run.journal"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"run\.journal: not a journal"):
        Journal(path, "plan")
    assert path.read_bytes() == content


def test_an_empty_file_is_begun(tmp_path):
    path = tmp_path / "run.journal"
    path.touch()
    write(path, result(0))
    assert problems_in(path) == [problem(0)]


def test_results_without_an_environment_are_refused(tmp_path):
    path = tmp_path / "run.journal"
    with Journal(path, "plan") as journal:
        journal.append(result(0))
    with pytest.raises(FileFormatError, match="results before their environment"):
        journal_dataset(path)


APPENDING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_journal import HERE, Journal, JournalEnvironment, result
journal = Journal(Path(sys.argv[2]), "plan")
journal.append(JournalEnvironment(HERE))
for number in range(100_000):
    journal.append(result(number))
    print(number, flush=True)
"""


def test_nothing_that_was_appended_is_lost_to_a_kill(tmp_path):
    path = tmp_path / "run.journal"
    for run in range(3):
        command = [sys.executable, "-c", APPENDING, str(Path(__file__).parent), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            appended = [int(process.stdout.readline()) for _ in range(50 * (run + 1))]
            process.send_signal(signal.SIGKILL)
            appended += [int(line) for line in process.stdout if line.endswith("\n")]
        assert process.returncode == -signal.SIGKILL
        with Journal(path, "plan") as journal:
            assert journal.finished.issuperset(problem(number) for number in appended)
    write(path, result(100_000))
    assert problem(100_000) in problems_in(path)
