"""The sweep: plans problems, compiles their kernels on all cores, and has what is ready timed meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from diode.collection.executors import Executor, Lost
from diode.collection.gpu.messages import Broken, Done, Entry, Job, KernelLaunch, Outcome
from diode.collection.gpu.timer import Repeats
from diode.collection.journal import Journal, JournalEnvironment, JournalOutcome, JournalResult
from diode.collection.kernels.compiler import CompileTarget
from diode.collection.kernels.pattern import KernelSource
from diode.collection.kernels.pool import (
    Compiled,
    CompileTask,
    Planned,
    PlanTask,
    TaskFailed,
    WorkerPool,
)
from diode.collection.kernels.store import kernel_path
from diode.collection.planning import KernelForm, PlannedProblem, PlanRequest
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.errors import CollectionError
from diode.types import AtenChoice, Choice, Failure, MMShape, SearchSpace

KERNELS_PER_TASK: Final = 6
_LOSSES_PER_JOB: Final = 4
_LOSSES_WITHOUT_ENTRIES: Final = 2
"""Of a job whose executor chooses itself: there is no entry to leave out the next time."""
_READY_JOBS: Final = 24
_POLL_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 15.0


@dataclass(frozen=True)
class SweepSettings:
    """What is measured of each problem, and how."""

    space: SearchSpace = "EXHAUSTIVE"
    sample: ChoiceSample | ChoiceList | None = None
    form: KernelForm = "family"
    repeats: Repeats = field(default_factory=Repeats)
    check: bool = True
    confirm: bool = False
    """Whether near-winners, and all of the DEFAULT space, are timed again as static kernels in a round of their own."""
    confirm_within: float = 0.10
    confirm_at_most: int = 64
    """On problems of few microseconds hundreds are that near, and the slowest of those are not what is looked for."""
    confirm_repeats: Repeats = field(default_factory=lambda: Repeats(at_least=7, at_most=15, hopeless=1e9))


@dataclass
class SweepProgress:
    """What a display shows of a running sweep."""

    problems: int
    problems_done: int = 0
    measurements: int = 0
    failures: int = 0
    kernels_compiled: int = 0
    kernels_waiting: int = 0
    trying_seconds: float = 0.0
    timing_seconds: float = 0.0
    discarded_samples: int = 0
    restarts: int = 0
    last: str = ""
    broken: list[str] = field(default_factory=list)


@dataclass
class _Task:
    """One problem in one round, from plan to result."""

    problem: MMShape
    round: int
    planned: PlannedProblem | None = None
    missing: set[str] = field(default_factory=set)
    lost: dict[Choice, Failure] = field(default_factory=dict)
    losses: int = 0


class Sweep:
    """Runs problems through pool and executor until done, out of time, or told to stop. Results go to the journal."""

    def __init__(
        self,
        problems: Iterable[MMShape],
        settings: SweepSettings,
        executor: Executor,
        pool: WorkerPool | None,
        journal: Journal,
        store: Path,
    ) -> None:
        """An executor that chooses itself needs no pool: nothing is planned and compiled for it."""
        if pool is None and not executor.chooses_itself:
            raise CollectionError("this executor times kernels that a WorkerPool compiles: give the sweep one")
        self._settings = settings
        self._executor = executor
        self._pool = pool
        self._journal = journal
        self._store = str(store)
        self._hardware = executor.environment.hardware
        self._target = CompileTarget.of(self._hardware)
        wanted = list(dict.fromkeys(problems))
        self._unplanned = deque(problem for problem in wanted if problem not in journal.finished)
        self._tasks: dict[int, _Task] = {}
        self._ready: deque[int] = deque()
        self._kernels: dict[str, Failure | None] = {}
        self._awaiting: dict[str, list[int]] = {}
        self._next_number = 0
        self.progress = SweepProgress(len(wanted), problems_done=len(wanted) - len(self._unplanned))

    def run(self, should_stop: Callable[[], bool], show: Callable[[SweepProgress], None]) -> bool:
        """Whether everything was measured; if not, the journal holds what was."""
        self._journal.append(JournalEnvironment(self._executor.environment))
        while self._unplanned or self._tasks:
            if should_stop():
                self._finish_running()
                return not (self._unplanned or self._tasks)
            if self._executor.chooses_itself:
                self._make_ready()
            else:
                self._plan_ahead()
                self._feed_executor()
                self._hear_pool(0.0 if self._executor.pending else _POLL_SECONDS)
            self._feed_executor()
            if self._executor.pending:
                for reply in self._executor.replies(_POLL_SECONDS / 4):
                    self._take_reply(reply)
            show(self.progress)
        return True

    def _make_ready(self) -> None:
        """Gives problems to an executor that chooses itself: there is nothing to plan."""
        while self._unplanned and len(self._ready) < self._executor.idle:
            task = _Task(self._unplanned.popleft(), round=1)
            task.planned = PlannedProblem(task.problem)
            self._ready.append(self._number(task))

    def _hear_pool(self, timeout: float) -> None:
        for result in self._compilers.results(timeout):
            if isinstance(result, Planned):
                self._take_plan(result)
            elif isinstance(result, Compiled):
                self._take_kernels(dict(result.failures))
            else:
                self._take_failed_task(result)

    @property
    def _compilers(self) -> WorkerPool:
        assert self._pool is not None
        return self._pool

    def _finish_running(self) -> None:
        """Lets the jobs that the executor has begun end: they are seconds, and would have to be done again."""
        if self._pool is not None:
            self._pool.discard_waiting()
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._executor.pending and time.monotonic() < deadline:
            for reply in self._executor.replies(_POLL_SECONDS):
                self._take_reply(reply)

    def _plan_ahead(self) -> None:
        """Keeps enough kernels waiting for all cores, and no more plans than that takes."""
        planning = sum(task.planned is None for task in self._tasks.values())
        while (
            self._unplanned
            and planning < 2 * self._compilers.size
            and self._compilers.backlog < 4 * self._compilers.size
            and len(self._ready) < _READY_JOBS
        ):
            self._begin(_Task(self._unplanned.popleft(), round=1))
            planning += 1

    def _number(self, task: _Task) -> int:
        number = self._next_number
        self._next_number += 1
        self._tasks[number] = task
        return number

    def _begin(self, task: _Task, only: tuple[Choice, ...] | None = None) -> None:
        number = self._number(task)
        request = PlanRequest(
            problem=task.problem,
            hardware=self._hardware,
            space=self._settings.space,
            sample=self._settings.sample if task.round == 1 else None,
            only=only,
            with_default_space=task.round == 2,
            form=self._form(task.round),
        )
        self._compilers.submit(PlanTask(number, request), urgent=True)

    def _take_plan(self, result: Planned) -> None:
        task = self._tasks[result.number]
        task.planned = result.problem
        fresh: list[tuple[str, KernelSource]] = []
        for planned in result.problem.choices:
            if planned.kernel is None or planned.kernel.key in self._kernels:
                continue
            key = planned.kernel.key
            if key not in self._awaiting:
                self._awaiting[key] = []
                fresh.append((key, planned.kernel.source))
            if key not in task.missing:
                task.missing.add(key)
                self._awaiting[key].append(result.number)
        for first in range(0, len(fresh), KERNELS_PER_TASK):
            kernels = tuple(fresh[first : first + KERNELS_PER_TASK])
            self._compilers.submit(CompileTask(kernels, self._target, self._store), urgent=task.round == 2)
        self.progress.kernels_waiting += len(fresh)
        if not task.missing:
            self._ready.append(result.number)

    def _take_kernels(self, failures: dict[str, Failure | None]) -> None:
        self.progress.kernels_compiled += len(failures)
        self.progress.kernels_waiting -= len(failures)
        for key, failure in failures.items():
            self._kernels[key] = failure
            for number in self._awaiting.pop(key, []):
                task = self._tasks[number]
                task.missing.discard(key)
                if not task.missing:
                    self._ready.append(number)

    def _take_failed_task(self, result: TaskFailed) -> None:
        if isinstance(result.task, CompileTask):
            if len(result.task.kernels) > 1:
                # One of them did it; alone, each gets its own verdict.
                for kernel in result.task.kernels:
                    self._compilers.submit(replace(result.task, kernels=(kernel,)))
                return
            self._take_kernels({result.task.kernels[0][0]: Failure("compile_error", result.reason)})
            return
        task = self._tasks.pop(result.task.number)
        self._give_up(task.problem, result.reason)

    def _feed_executor(self) -> None:
        while self._ready and self._executor.idle > 0:
            number = self._ready.popleft()
            task = self._tasks[number]
            entries = self._entries(task)
            repeats = self._settings.repeats if task.round == 1 else self._settings.confirm_repeats
            self._executor.submit(Job(number, task.problem, entries, repeats, self._settings.check))

    def _entries(self, task: _Task) -> tuple[Entry, ...]:
        assert task.planned is not None
        entries = []
        for planned in task.planned.choices:
            kernel = planned.kernel
            if planned.choice in task.lost or (kernel is not None and self._kernels[kernel.key] is not None):
                continue
            launch = None
            if kernel is not None:
                path = str(kernel_path(self._store, kernel.key))
                launch = KernelLaunch(path, kernel.source.signature, kernel.grid, kernel.sizes)
            entries.append(Entry(planned.choice, launch))
        # The library's kernels first: they show at once what is hopeless.
        return tuple(sorted(entries, key=lambda entry: entry.kernel is not None))

    def _take_reply(self, reply: Done | Broken | Lost) -> None:
        if isinstance(reply, Lost):
            self._take_loss(reply)
        elif isinstance(reply, Broken):
            task = self._tasks.pop(reply.number)
            self._give_up(task.problem, reply.reason)
        else:
            self._take_outcomes(reply)

    def _take_loss(self, loss: Lost) -> None:
        self.progress.restarts += 1
        task = self._tasks[loss.job.number]
        task.losses += 1
        if loss.entry >= 0:
            task.lost[loss.job.entries[loss.entry].choice] = Failure("crash", loss.reason)
        if self._executor.chooses_itself and task.losses >= _LOSSES_WITHOUT_ENTRIES:
            del self._tasks[loss.job.number]
            self._give_up(task.problem, loss.reason)
            return
        if task.losses >= _LOSSES_PER_JOB:
            for entry in loss.job.entries:
                task.lost.setdefault(entry.choice, Failure("unknown", f"its problem was given up: {loss.reason}"))
        self._ready.appendleft(loss.job.number)

    def _take_outcomes(self, done: Done) -> None:
        task = self._tasks.pop(done.number)
        outcomes = [*self._failed_before(task), *done.outcomes]
        follow_up = self._near_winners(task, done.outcomes)
        self._journal.append(
            JournalResult(
                problem=task.problem,
                method=self._executor.method(self._form(task.round), task.round),
                outcomes=tuple(JournalOutcome(o.choice, o.timing, o.failure) for o in outcomes),
                final=follow_up is None,
            )
        )
        self._note(task, outcomes, done, final=follow_up is None)
        if follow_up is not None:
            self._begin(_Task(task.problem, round=2), only=follow_up)

    def _failed_before(self, task: _Task) -> list[Outcome]:
        """What failed on the way to the GPU."""
        assert task.planned is not None
        failed = dict(task.planned.failed)
        failed.update(task.lost)
        for planned in task.planned.choices:
            failure = self._kernels.get(planned.kernel.key) if planned.kernel is not None else None
            if failure is not None:
                failed[planned.choice] = failure
        return [Outcome(choice, None, failure) for choice, failure in failed.items()]

    def _near_winners(self, task: _Task, outcomes: Iterable[Outcome]) -> tuple[Choice, ...] | None:
        if not self._settings.confirm or task.round == 2 or self._executor.chooses_itself:
            return None
        timed = [(outcome.timing.time_us, outcome.choice) for outcome in outcomes if outcome.timing is not None]
        if not timed:
            return None
        fastest = sorted(time_us for time_us, _ in timed)[: self._settings.confirm_at_most]
        bound = min(fastest[0] * (1.0 + self._settings.confirm_within), fastest[-1])
        return tuple(choice for time_us, choice in timed if time_us <= bound or isinstance(choice, AtenChoice))

    def _form(self, round_number: int) -> KernelForm:
        return self._settings.form if round_number == 1 else "static"

    def _note(self, task: _Task, outcomes: list[Outcome], done: Done, *, final: bool) -> None:
        progress = self.progress
        timed = [outcome for outcome in outcomes if outcome.timing is not None]
        progress.measurements += len(timed)
        progress.failures += len(outcomes) - len(timed)
        progress.problems_done += final
        progress.trying_seconds += done.trying_seconds
        progress.timing_seconds += done.timing_seconds
        progress.discarded_samples += done.discarded
        if timed:
            best = min(timed, key=lambda outcome: outcome.timing.time_us if outcome.timing else 0.0)
            assert best.timing is not None
            giga = task.problem.flops / best.timing.time_us / 1e3
            rate = f"{giga / 1e3:.0f} TFLOP/s" if giga >= 1e3 else f"{giga:.3g} GFLOP/s"
            progress.last = f"{task.problem}: {best.timing.time_us:.1f} us, {rate}, {best.choice}"

    def _give_up(self, problem: MMShape, reason: str) -> None:
        self.progress.broken.append(f"{problem}: {reason}")
        self.progress.problems_done += 1
