"""The executor of a machine without a GPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from diode.collection.cpu.process import serve
from diode.collection.executors import Lost, Reply
from diode.collection.gpu.messages import Job, Stop
from diode.errors import CollectionError
from diode.types import Environment, TimingMethod

if TYPE_CHECKING:
    from diode.collection.planning import KernelForm

_START_SECONDS: Final = 180.0


class CpuExecutor:
    """Has Inductor compile and time its choices in a process of their own; one that dies is started again.

    One process and no more: it has all cores for its kernels, and a second one would disturb its times.
    """

    chooses_itself = True

    def __init__(self, command: str = "", patience_seconds: float = 600.0) -> None:
        """A job without a result for `patience_seconds` is taken for hung."""
        self._command = command
        self._patience_seconds = patience_seconds
        self._context = multiprocessing.get_context("spawn")
        # Ours and not the process's, so that nothing is left behind by one that is killed.
        self._scratch = tempfile.TemporaryDirectory(prefix="diode-cpu-", ignore_cleanup_errors=True)
        self._job: Job | None = None
        self._since = 0.0
        self._start()
        self.environment: Environment = self._await_environment()

    @property
    def idle(self) -> int:
        return 1 - self.pending

    @property
    def pending(self) -> int:
        return 0 if self._job is None else 1

    def submit(self, job: Job) -> None:
        self._job = job
        self._since = time.monotonic()
        with contextlib.suppress(OSError):  # a dead process is noticed in `replies`
            self._connection.send(job)

    def replies(self, timeout: float) -> list[Reply]:
        if self._connection.poll(timeout):
            return self._receive()
        if self._job is not None and time.monotonic() - self._since > self._patience_seconds:
            return self._lose(f"the CPU process gave no result in {self._patience_seconds:g} s")
        return []

    def method(self, form: KernelForm, round_number: int) -> TimingMethod:
        return TimingMethod(timer="inductor", statistic="median")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(Stop())
        # One that computes does not hear of it, and what it computes is not wanted any more.
        self._process.join(timeout=0.0 if self._job is not None else 5.0)
        self._end_process()
        self._scratch.cleanup()

    def _receive(self) -> list[Reply]:
        try:
            reply: Reply = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            return self._lose(f"the CPU process died with exit code {self._process.exitcode}")
        self._job = None
        return [reply]

    def _lose(self, reason: str) -> list[Reply]:
        job, self._job = self._job, None
        self._end_process()
        self._start()
        self._await_environment()
        return [] if job is None else [Lost(job, -1, reason)]

    def _start(self) -> None:
        self._connection: Connection
        self._connection, theirs = self._context.Pipe()
        arguments = (theirs, self._scratch.name, self._command)
        self._process: Any = self._context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def _end_process(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _await_environment(self) -> Environment:
        answer: object = None
        if self._connection.poll(_START_SECONDS):
            with contextlib.suppress(EOFError, OSError):
                answer = self._connection.recv()
        if not isinstance(answer, Environment):
            self.close()
            raise CollectionError(
                f"the CPU process cannot start: {answer or 'it died'}; "
                "check that torch.compile works here and that a C++ compiler is installed"
            )
        return answer
