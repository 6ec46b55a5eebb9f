"""Sweeps in which all is real but the GPU: problems are planned and kernels compiled, and the times are made up."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from diode.collection.ahead import compile_ahead
from diode.collection.executors import Lost
from diode.collection.gpu.messages import Broken, Done, Job, Outcome
from diode.collection.journal import Journal
from diode.collection.kernels.store import read_kernel
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.collection.sweep import Sweep, SweepProgress, SweepSettings
from diode.integration.lowering import lowered
from diode.types import (
    AtenChoice,
    Dataset,
    Environment,
    Failure,
    MMShape,
    PersistentTMAConfig,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

TINY = MMShape.of("mm", 3, 5, 7, dtype="float16")
LINEAR = MMShape.of("addmm", 16, 24, 32, layout="NT")
RICH = MMShape.of("mm", 19, 21, 23, dtype="float16")
"""Small, and yet EXHAUSTIVE has choices that DEFAULT lacks."""
BATCHED = MMShape.of("bmm", 16, 24, 32, B=3)
ATEN_US = 50.0
FEW = ChoiceSample(3)


def time_of(job: Job, number: int) -> float:
    """The library is in the middle; the others stand apart so that one alone is near the best."""
    choice = job.entries[number].choice
    return ATEN_US if isinstance(choice, AtenChoice) else 10.0 * (number + 1)


@dataclass
class MadeUpTimes:
    """An executor that looks at each kernel's file and makes up its time; `answer` may say something else instead."""

    answer: Callable[[Job], Done | Broken | Lost | None] = lambda job: None
    hardware: object = H200
    chooses_itself = False
    jobs: list[Job] = field(default_factory=list)
    _waiting: list[Job] = field(default_factory=list)

    @property
    def environment(self) -> Environment:
        return Environment(self.hardware, torch="made up")

    @property
    def idle(self) -> int:
        return 2 - len(self._waiting)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        assert self.idle > 0
        self.jobs.append(job)
        self._waiting.append(job)

    def replies(self, timeout: float) -> list[Done | Broken | Lost]:
        job = self._waiting.pop(0)
        return [self.answer(job) or timed(job)]

    def method(self, form, round_number) -> TimingMethod:
        return TimingMethod("diode-sweep", "median", kernel=form, round=round_number)

    def close(self) -> None:
        pass


def timed(job: Job) -> Done:
    outcomes = []
    for number, entry in enumerate(job.entries):
        if entry.kernel is not None:
            assert read_kernel(Path(entry.kernel.path)).binary.startswith(b"\x7fELF")
        outcomes.append(Outcome(entry.choice, Timing(time_of(job, number)), None))
    return Done(job.number, tuple(outcomes), 0.0, 0.0, discarded=0)


@dataclass
class Swept:
    complete: bool
    progress: SweepProgress
    dataset: Dataset
    finished: set[MMShape]

    def rows(self, problem: MMShape) -> list:
        return [row for row in self.dataset if row.problem == problem]


@pytest.fixture
def sweep(pool, tmp_path):
    def run(problems, executor, *, stop=lambda progress: False, show=lambda progress: None, **settings):
        with Journal(tmp_path / "run.journal", "plan") as journal:
            running = Sweep(problems, SweepSettings(**settings), executor, pool, journal, tmp_path / "kernels")
            complete = running.run(lambda: stop(running.progress), show)
            dataset = journal.dataset()
        # What a stopped sweep has begun must not reach the next one, which has the same pool.
        pool.discard_waiting()
        while pool.busy:
            pool.results(0.2)
        with Journal(tmp_path / "run.journal", "plan") as journal:
            return Swept(complete, running.progress, dataset, journal.finished)

    return run


def tiled_in(choices):
    return [choice for choice in choices if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig)]


def test_each_problem_is_planned_compiled_and_timed_in_one_job(sweep):
    executor = MadeUpTimes()
    swept = sweep([TINY, LINEAR, BATCHED, TINY], executor, sample=FEW)
    assert swept.complete
    assert swept.finished == {TINY, LINEAR, BATCHED}
    assert sorted(map(str, (job.problem for job in executor.jobs))) == sorted(map(str, swept.finished))
    for job in executor.jobs:
        assert job.entries[0].choice == AtenChoice(job.problem.op)  # first, to show what is hopeless
        assert len(tiled_in(entry.choice for entry in job.entries)) == len(job.entries) - 1 == 3
        assert {len(entry.kernel.sizes) for entry in job.entries[1:]} == {3 if job.problem.B > 1 else 2}
        rows = swept.rows(job.problem)
        assert {row.choice: row.time_us for row in rows} == {
            entry.choice: time_of(job, number) for number, entry in enumerate(job.entries)
        }
        assert {row.method.kernel for row in rows} == {"family", "backend"}
    progress = swept.progress
    assert (progress.problems, progress.problems_done) == (3, 3)
    assert (progress.measurements, progress.failures, progress.restarts) == (12, 0, 0)
    assert (progress.kernels_compiled, progress.kernels_waiting, progress.broken) == (9, 0, [])
    assert progress.last


def test_near_winners_and_the_default_space_are_timed_again_as_static_kernels(sweep):
    executor = MadeUpTimes()
    with lowered(RICH, "DEFAULT", H200) as candidates:
        default = [candidate.choice for candidate in candidates]
    with lowered(RICH, "EXHAUSTIVE", H200) as candidates:
        rare = [candidate.choice for candidate in candidates if candidate.choice not in default]
    measured = ChoiceList.of(rare[:3])
    swept = sweep([RICH], executor, sample=measured, confirm=True, confirm_within=0.4)
    assert swept.complete
    first, second = executor.jobs
    assert {entry.choice for entry in first.entries} == {AtenChoice("mm"), *rare[:3]}
    assert {entry.kernel.sizes for entry in first.entries if entry.kernel} == {(19, 21)}
    # 20 us is the best, and 30 us is not within 0.4 of it; the library is timed again however slow it is
    winner = first.entries[1].choice
    assert {entry.choice for entry in second.entries} == {AtenChoice("mm"), winner, *default}
    assert {entry.kernel.sizes for entry in second.entries if entry.kernel} == {()}
    assert second.repeats == SweepSettings().confirm_repeats != first.repeats
    rounds = {(row.method.round, row.method.kernel) for row in swept.dataset if row.choice in tiled_in(rare + default)}
    assert rounds == {(1, "family"), (2, "static")}
    assert {(row.method.round, row.method.kernel) for row in swept.dataset if isinstance(row.choice, AtenChoice)} == {
        (1, "backend"),
        (2, "backend"),
    }
    assert len(swept.rows(RICH)) == len(first.entries) + len(second.entries)


def test_of_many_near_winners_the_fastest_are_timed_again(sweep):
    executor = MadeUpTimes()
    sweep([RICH], executor, sample=ChoiceSample(6), confirm=True, confirm_within=100.0, confirm_at_most=2)
    first, second = executor.jobs
    with lowered(RICH, "DEFAULT", H200) as candidates:
        default = {candidate.choice for candidate in candidates}
    # 20 and 30 us are the fastest, and the library comes with 50
    winners = {entry.choice for entry in first.entries[1:3]}
    assert {entry.choice for entry in second.entries} == winners | default | {AtenChoice("mm")}


def test_a_problem_stopped_between_its_rounds_is_measured_anew(sweep):
    executor = MadeUpTimes()
    few = {"sample": ChoiceSample(1), "space": "DEFAULT", "confirm": True}
    stopped = sweep([TINY], executor, stop=lambda progress: len(executor.jobs) == 1, **few)
    assert not stopped.complete
    assert stopped.finished == set()
    assert {row.method.round for row in stopped.dataset} == {1}
    resumed = sweep([TINY], executor, **few)
    assert resumed.complete
    assert [job.entries[0].choice for job in executor.jobs] == [AtenChoice("mm")] * 3
    assert len(resumed.rows(TINY)) == len(executor.jobs[1].entries) + len(executor.jobs[2].entries)


def test_a_choice_that_kills_the_process_is_a_failure_and_the_rest_is_tried_again(sweep):
    def lose(job):
        return Lost(job, 2, "illegal address") if len(executor.jobs) == 1 else None

    executor = MadeUpTimes(lose)
    swept = sweep([TINY], executor, sample=FEW)
    first, second = executor.jobs
    culprit = first.entries[2].choice
    assert second.entries == (*first.entries[:2], *first.entries[3:])
    failures = {row.choice: row.failure for row in swept.rows(TINY) if row.failure}
    assert failures == {culprit: Failure("crash", "illegal address")}
    assert len(swept.rows(TINY)) == 4
    assert (swept.complete, swept.progress.restarts, swept.progress.failures) == (True, 1, 1)


def test_a_process_lost_for_no_choices_sake_is_no_label(sweep):
    executor = MadeUpTimes(lambda job: Lost(job, -1, "hung") if len(executor.jobs) < 4 else None)
    swept = sweep([TINY], executor, sample=FEW)
    assert {job.entries for job in executor.jobs} == {executor.jobs[0].entries}
    assert (swept.complete, swept.progress.restarts, swept.progress.failures) == (True, 3, 0)


def test_a_problem_that_costs_one_process_after_the_other_is_given_up(sweep):
    executor = MadeUpTimes(lambda job: Lost(job, -1, "hung") if job.entries else None)
    swept = sweep([TINY, BATCHED], executor, sample=FEW)
    assert swept.complete
    assert swept.finished == {TINY, BATCHED}
    assert {row.failure.reason for row in swept.dataset} == {"unknown"}
    assert all("its problem was given up: hung" in row.failure.message for row in swept.dataset)
    assert swept.progress.restarts == 8


def test_a_problem_that_cannot_be_set_up_is_told_and_tried_again_another_time(sweep):
    def refuse(job):
        return Broken(job.number, "out of memory") if job.problem == TINY else None

    swept = sweep([TINY, BATCHED], MadeUpTimes(refuse), sample=FEW)
    assert swept.complete
    assert swept.progress.broken == [f"{TINY}: out of memory"]
    assert swept.finished == {BATCHED}
    again = sweep([TINY, BATCHED], MadeUpTimes(), sample=FEW)
    assert again.finished == {TINY, BATCHED}
    assert again.progress.measurements == 4


def test_what_cannot_be_planned_is_given_up_and_the_others_measured(sweep):
    too_large = MMShape.of("mm", 2**16, 2**16, 64)
    swept = sweep([too_large, TINY], MadeUpTimes(), sample=FEW)
    assert swept.complete
    (reason,) = swept.progress.broken
    assert reason.startswith(f"{too_large}: UnsupportedError: ")
    assert "64-bit addresses" in reason
    assert swept.finished == {TINY}


def test_kernels_that_do_not_compile_are_failures_of_their_choices(sweep):
    """A GPU of a generation that Inductor generates for and this compiler knows nothing of."""
    executor = MadeUpTimes(hardware=msgspec.structs.replace(H200, capability=(19, 0)))
    swept = sweep([TINY], executor, sample=FEW)
    assert swept.complete
    (job,) = executor.jobs
    assert [entry.choice for entry in job.entries] == [AtenChoice("mm")]
    failed = [row for row in swept.rows(TINY) if row.failure]
    assert len(tiled_in(row.choice for row in failed)) == 3
    assert {row.failure.reason for row in failed} == {"compile_error"}
    assert all(row.failure.message.startswith("triton_mm: ") for row in failed)
    assert swept.progress.failures == 3


def test_what_exceeds_the_shared_memory_is_a_failure_that_nobody_compiles(sweep):
    deep = MMShape.of("mm", 256, 256, 512, dtype="float32")
    tiles = [(256, 128, 128, 5, 8), (16, 16, 16, 1, 1)]
    listed = ChoiceList.of(TritonGEMMConfig("triton::mm", *tile) for tile in tiles)
    swept = sweep([deep], MadeUpTimes(), sample=listed)
    outcomes = {row.choice.block_m: row.failure for row in swept.rows(deep) if isinstance(row.choice, TritonGEMMConfig)}
    assert outcomes[16] is None
    assert outcomes[256].reason == "shared_memory"
    assert swept.progress.kernels_compiled == 1


def test_a_killed_compiler_costs_no_measurement(sweep):
    killed = []

    def kill_once(progress):
        if progress.kernels_waiting and not killed:
            killed.extend(multiprocessing.active_children())
            kill(killed)

    swept = sweep([TINY, BATCHED, LINEAR], MadeUpTimes(), sample=FEW, show=kill_once)
    assert killed
    assert swept.complete
    assert swept.progress.problems_done == 3
    # A task whose process was killed before it was begun is lost with it; what was measured is whole.
    measured = {row.problem for row in swept.dataset}
    assert len(measured) + len(swept.progress.broken) == 3
    assert all(row.failure is None or row.failure.reason == "compile_error" for row in swept.dataset)
    assert all("the compiler process died (exit code -9)" in reason for reason in swept.progress.broken)


def test_a_stopped_sweep_goes_on_and_measures_nothing_twice(sweep):
    executor = MadeUpTimes()
    stopped = sweep([TINY, BATCHED, LINEAR], executor, sample=FEW, stop=lambda progress: progress.problems_done > 0)
    assert not stopped.complete
    assert 1 <= len(stopped.finished) < 3
    resumed = sweep([TINY, BATCHED, LINEAR], executor, sample=FEW)
    assert resumed.complete
    assert sorted(str(job.problem) for job in executor.jobs) == sorted(map(str, (TINY, BATCHED, LINEAR)))
    assert list(resumed.dataset)[: len(stopped.dataset)] == list(stopped.dataset)
    assert resumed.progress.measurements == 12 - stopped.progress.measurements


def test_a_sweep_that_is_stopped_during_its_last_problem_is_complete(sweep):
    class AskedTwice(MadeUpTimes):
        asked = 0

        def replies(self, timeout: float) -> list[Done | Broken | Lost]:
            self.asked += 1
            return super().replies(timeout) if self.asked > 1 else []

    executor = AskedTwice()
    stopped = sweep([TINY], executor, sample=FEW, stop=lambda progress: executor.asked > 0)
    assert stopped.complete
    assert stopped.finished == {TINY}


def test_kernels_can_be_compiled_before_there_is_a_gpu(pool, tmp_path):
    settings = SweepSettings(sample=FEW)
    store = tmp_path / "kernels"
    shown = []
    done = compile_ahead([TINY, BATCHED], settings, H200, pool, store, lambda: False, shown.append)
    assert (done.problems, done.problems_planned, done.kernels, done.compiled, done.failed) == (2, 2, 6, 6, 0)
    assert len(list(store.rglob("*.kernel"))) == 6
    assert shown
    again = compile_ahead([TINY, BATCHED], settings, H200, pool, store, lambda: False, shown.append)
    assert (again.kernels, again.compiled, again.failed) == (6, 6, 0)

    executor = MadeUpTimes()
    written = {path: path.stat().st_mtime_ns for path in store.rglob("*.kernel")}
    with Journal(tmp_path / "run.journal", "plan") as journal:
        assert Sweep([TINY, BATCHED], settings, executor, pool, journal, store).run(
            lambda: False, lambda progress: None
        )
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*.kernel")} == written


def kill(processes):
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def test_a_compiler_that_is_killed_ahead_of_a_sweep_costs_no_kernel(pool, tmp_path):
    killed = []

    def kill_once(progress):
        if progress.kernels and not killed:
            killed.append(progress.kernels)
            kill(multiprocessing.active_children())

    store = tmp_path / "kernels"
    four = SweepSettings(sample=ChoiceSample(4))
    done = compile_ahead([LINEAR], four, H200, pool, store, lambda: False, kill_once)
    assert killed
    assert (done.problems_planned, done.kernels, done.compiled, done.failed) == (1, 4, 4, 0)
    assert len(list(store.rglob("*.kernel"))) == 4


def test_each_kernel_that_no_compiler_survives_is_a_failure_of_its_own(pool, tmp_path):
    def kill_always(progress):
        if progress.kernels:
            kill(multiprocessing.active_children())

    store = tmp_path / "kernels"
    four = SweepSettings(sample=ChoiceSample(4))
    done = compile_ahead([LINEAR], four, H200, pool, store, lambda: False, kill_always)
    assert done.failed
    assert done.compiled + done.failed == done.kernels == 4
