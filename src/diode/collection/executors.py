"""Who times: this process, or one process per GPU. A cluster engine is one more class with these methods."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from diode.collection.gpu.messages import Broken, Done, Job, Ready, Stop
from diode.errors import CollectionError
from diode.types import Environment, TimingMethod

if TYPE_CHECKING:
    from diode.collection.planning import KernelForm

_START_SECONDS: Final = 180.0
_SILENCE_SECONDS: Final = 45.0
"""So long without a step from one entry to the next, a kernel is taken for hung."""
_TIMING_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Lost:
    """The process died or hung; `entry` is the job's entry that ran then, or -1 while all were being timed."""

    job: Job
    entry: int
    reason: str


Reply = Done | Broken | Lost


class Executor(Protocol):
    """Takes jobs and gives replies, in any order."""

    @property
    def environment(self) -> Environment:
        """What the jobs run on."""

    @property
    def chooses_itself(self) -> bool:
        """Whether it finds and compiles a problem's choices on its own: its jobs then come without entries."""

    @property
    def idle(self) -> int:
        """How many jobs it would begin at once."""

    @property
    def pending(self) -> int:
        """Jobs taken and not replied to."""

    def submit(self, job: Job) -> None: ...

    def replies(self, timeout: float) -> list[Reply]:
        """What has been finished; waits up to `timeout` for the first."""

    def method(self, form: KernelForm, round_number: int) -> TimingMethod:
        """How it times kernels of this form in this round."""

    def close(self) -> None: ...


class InProcess:
    """Times on a GPU of this process: simple, and gone with the first kernel that kills the context."""

    chooses_itself = False

    def __init__(self, device_index: int = 0, command: str = "") -> None:
        import torch

        from diode.collection.gpu.worker import GpuWorker
        from diode.integration.device import current_environment

        self._worker = GpuWorker(torch.device("cuda", device_index), SimpleNamespace(value=-1))
        self.environment: Environment = current_environment(self._worker.hardware, command)
        self.flush_bytes: int = self._worker.timer.flush_bytes
        self.overhead_us: float = self._worker.timer.overhead_us
        self._jobs: list[Job] = []

    @property
    def idle(self) -> int:
        return 0 if self._jobs else 1

    @property
    def pending(self) -> int:
        return len(self._jobs)

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def replies(self, timeout: float) -> list[Reply]:
        if not self._jobs:
            time.sleep(timeout)
            return []
        return [self._worker.run(self._jobs.pop(0))]

    def method(self, form: KernelForm, round_number: int) -> TimingMethod:
        return _gpu_method(self.flush_bytes, self.overhead_us, form, round_number)

    def close(self) -> None:
        self._jobs.clear()


@dataclass
class _GpuProcess:
    index: int
    process: Any
    connection: Connection
    trying: Any
    jobs: list[Job]
    seen: int = -1
    since: float = 0.0


class ProcessPerGpu:
    """One process for each GPU; one that dies is started again, and the job it had is reported as lost."""

    chooses_itself = False

    def __init__(self, device_indices: Sequence[int] = (0,), command: str = "") -> None:
        self._command = command
        self._context = multiprocessing.get_context("spawn")
        self._gpus = [self._start(index) for index in device_indices]
        ready = [self._await_ready(gpu) for gpu in self._gpus]
        self.environment: Environment = ready[0].environment
        self.flush_bytes: int = ready[0].flush_bytes
        self.overhead_us: float = ready[0].overhead_us
        others = {answer.environment.hardware.name for answer in ready} - {self.environment.hardware.name}
        if others:
            self.close()
            raise CollectionError(
                f"GPUs of different kinds cannot share one collection: {self.environment.hardware.name} and "
                f"{', '.join(sorted(others))}; name alike ones with --devices"
            )

    @property
    def idle(self) -> int:
        # One job waits in each process's pipe, so that no GPU stands still between two jobs.
        return sum(max(0, 2 - len(gpu.jobs)) for gpu in self._gpus)

    @property
    def pending(self) -> int:
        return sum(len(gpu.jobs) for gpu in self._gpus)

    def submit(self, job: Job) -> None:
        gpu = min(self._gpus, key=lambda candidate: len(candidate.jobs))
        if not gpu.jobs:
            gpu.since = time.monotonic()
        gpu.jobs.append(job)
        with contextlib.suppress(BrokenPipeError):  # a dead process is noticed in `replies`
            gpu.connection.send(job)

    def replies(self, timeout: float) -> list[Reply]:
        ready = wait([gpu.connection for gpu in self._gpus], timeout)
        replies: list[Reply] = []
        for number, gpu in enumerate(self._gpus):
            if gpu.connection in ready:
                replies += self._receive(number, gpu)
            elif gpu.jobs and self._silent(gpu):
                replies += self._lose(number, gpu, "hung")
        return replies

    def method(self, form: KernelForm, round_number: int) -> TimingMethod:
        return _gpu_method(self.flush_bytes, self.overhead_us, form, round_number)

    def close(self) -> None:
        for gpu in self._gpus:
            with contextlib.suppress(BrokenPipeError, OSError):
                gpu.connection.send(Stop())
        for gpu in self._gpus:
            gpu.process.join(timeout=5)
            gpu.process.kill()
            gpu.process.join()
            gpu.connection.close()

    def _receive(self, number: int, gpu: _GpuProcess) -> list[Reply]:
        try:
            reply = gpu.connection.recv()
        except (EOFError, OSError):
            gpu.process.join(timeout=5)
            return self._lose(number, gpu, f"the GPU process died with exit code {gpu.process.exitcode}")
        gpu.jobs.pop(0)
        gpu.since = time.monotonic()
        return [reply]

    def _silent(self, gpu: _GpuProcess) -> bool:
        current = gpu.trying.value
        now = time.monotonic()
        if current != gpu.seen:
            gpu.seen, gpu.since = current, now
        return now - gpu.since > (_TIMING_SECONDS if current < 0 else _SILENCE_SECONDS)

    def _lose(self, number: int, gpu: _GpuProcess, reason: str) -> list[Reply]:
        entry = gpu.trying.value
        gpu.process.kill()
        gpu.process.join()
        gpu.connection.close()
        fresh = self._gpus[number] = self._start(gpu.index)
        self._await_ready(fresh)
        for job in gpu.jobs[1:]:
            self.submit(job)
        return [Lost(gpu.jobs[0], entry, reason)] if gpu.jobs else []

    def _start(self, index: int) -> _GpuProcess:
        from diode.collection.gpu.process import serve

        ours, theirs = self._context.Pipe()
        trying = self._context.Value("i", -1)
        process = self._context.Process(target=serve, args=(theirs, index, trying, self._command), daemon=True)
        process.start()
        theirs.close()
        return _GpuProcess(index, process, ours, trying, [], since=time.monotonic())

    def _await_ready(self, gpu: _GpuProcess) -> Ready:
        answer: object = None
        if gpu.connection.poll(_START_SECONDS):
            with contextlib.suppress(EOFError, OSError):
                answer = gpu.connection.recv()
        if not isinstance(answer, Ready):
            self.close()
            raise CollectionError(
                f"cuda:{gpu.index} cannot be used: {answer or 'its process died'}; "
                "check nvidia-smi, or measure on the CPU with --device cpu"
            )
        return answer


def _gpu_method(flush_bytes: int, overhead_us: float, form: KernelForm, round_number: int) -> TimingMethod:
    return TimingMethod(
        timer="diode-sweep",
        statistic="median",
        flush_bytes=flush_bytes,
        launch_hidden=True,
        overhead_us=overhead_us,
        kernel=form,
        round=round_number,
    )
