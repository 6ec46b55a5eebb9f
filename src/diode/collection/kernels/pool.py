"""Processes that plan problems and compile kernels on all cores while the GPU times what is ready."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from diode.collection.kernels.compiler import CompileTarget, KernelCompileError, compile_kernel
from diode.collection.kernels.pattern import KernelSource
from diode.collection.kernels.store import kernel_path, write_kernel
from diode.collection.planning import PlannedProblem, Planner, PlanRequest
from diode.types import Failure

_MEMORY_FOLDER: Final = "/dev/shm"
"""For the compiler's intermediate files: dozens for each kernel, all of them gone a moment later."""
_TASK_SECONDS: Final = 120.0
"""A compiler that takes longer on one task is taken for hung."""


@dataclass(frozen=True)
class PlanTask:
    number: int
    request: PlanRequest


@dataclass(frozen=True)
class CompileTask:
    """A few kernels, written to `store` under their keys."""

    kernels: tuple[tuple[str, KernelSource], ...]
    target: CompileTarget
    store: str


@dataclass(frozen=True)
class Planned:
    number: int
    problem: PlannedProblem


@dataclass(frozen=True)
class Compiled:
    """For each key either nothing, and the binary lies in the store, or why there is none."""

    failures: tuple[tuple[str, Failure | None], ...]


@dataclass(frozen=True)
class TaskFailed:
    """The task raised, or its process died."""

    task: PlanTask | CompileTask
    reason: str


Task = PlanTask | CompileTask
Result = Planned | Compiled | TaskFailed


def perform(task: Task, planner: Planner) -> Result:
    if isinstance(task, PlanTask):
        return Planned(task.number, planner.plan(task.request))
    return Compiled(tuple((key, _compile_to_store(key, source, task)) for key, source in task.kernels))


def _compile_to_store(key: str, source: KernelSource, task: CompileTask) -> Failure | None:
    path = kernel_path(task.store, key)
    if path.exists():
        return None
    try:
        kernel = compile_kernel(source, task.target)
    except KernelCompileError as error:
        return Failure("compile_error", str(error)[:500])
    write_kernel(path, kernel)
    return None


def _serve(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    # Triton 3.9 on its next version's default: as Inductor, we take the one that it has.
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
    if os.access(_MEMORY_FOLDER, os.W_OK):
        tempfile.tempdir = _MEMORY_FOLDER
    with contextlib.suppress(OSError):
        os.nice(5)  # the process that feeds the GPU comes first
    planner = Planner()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            result = perform(task, planner)
        except Exception as error:  # noqa: BLE001  # whatever a task raises is its result; the process goes on
            result = TaskFailed(task, f"{type(error).__name__}: {str(error)[:400]}")
        connection.send(result)


@dataclass
class _Worker:
    process: Any
    connection: Connection
    task: Task | None = None
    since: float = field(default_factory=time.monotonic)


class WorkerPool:
    """A fixed number of processes; one that dies or hangs is replaced, and its task reported as failed."""

    def __init__(self, size: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._urgent: deque[Task] = deque()
        self._waiting: deque[Task] = deque()
        self._workers = [self._start() for _ in range(size)]

    @property
    def size(self) -> int:
        return len(self._workers)

    @property
    def backlog(self) -> int:
        """Tasks that no process has begun."""
        return len(self._urgent) + len(self._waiting)

    @property
    def busy(self) -> bool:
        return self.backlog > 0 or any(worker.task is not None for worker in self._workers)

    @property
    def connections(self) -> list[Connection]:
        return [worker.connection for worker in self._workers]

    def submit(self, task: Task, *, urgent: bool = False) -> None:
        (self._urgent if urgent else self._waiting).append(task)
        self._feed()

    def discard_waiting(self) -> None:
        self._urgent.clear()
        self._waiting.clear()

    def results(self, timeout: float) -> list[Result]:
        """What has been finished; waits up to `timeout` for the first."""
        ready = wait(self.connections, timeout)
        results: list[Result] = []
        for number, worker in enumerate(self._workers):
            if worker.connection in ready:
                results += self._receive(number, worker)
            elif worker.task is not None and time.monotonic() - worker.since > _TASK_SECONDS:
                results += self._replace(number, worker, f"took longer than {_TASK_SECONDS:.0f} s")
        self._feed()
        return results

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()

    def _receive(self, number: int, worker: _Worker) -> list[Result]:
        try:
            result = worker.connection.recv()
        except (EOFError, OSError):
            return self._replace(number, worker, f"the compiler process died (exit code {_exit_code(worker.process)})")
        worker.task = None
        return [result]

    def _replace(self, number: int, worker: _Worker, reason: str) -> list[Result]:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers[number] = self._start()
        return [] if worker.task is None else [TaskFailed(worker.task, reason)]

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _feed(self) -> None:
        for worker in self._workers:
            if worker.task is not None:
                continue
            queue = self._urgent or self._waiting
            if not queue:
                return
            worker.task = queue.popleft()
            worker.since = time.monotonic()
            with contextlib.suppress(BrokenPipeError):  # a dead process is noticed, and replaced, in `results`
                worker.connection.send(worker.task)


def _exit_code(process: Any) -> int | None:
    process.join(timeout=5)
    return process.exitcode  # type: ignore[no-any-return]
