"""The process that owns one GPU. A kernel that kills the CUDA context kills this process and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch

from diode.collection.gpu.clock import ClockReader
from diode.collection.gpu.launcher import KernelLoader, KernelLoadError
from diode.collection.gpu.messages import Broken, Done, Entry, Job, Outcome, Ready, Stop
from diode.collection.gpu.operands import Operands
from diode.collection.gpu.timer import InterleavedTimer, Repeats, Sampled, sample_all
from diode.collection.kernels.compiler import CompiledKernel
from diode.collection.kernels.store import read_kernel
from diode.integration.device import current_environment, current_hardware
from diode.types import Choice, Failure, Timing

CONTEXT_LOST: Final = 71
"""Exit code for «a kernel killed the CUDA context»."""

_KERNELS_IN_MEMORY: Final = 6000
_FIRST_LAUNCH_COUNTS_US: Final = 1000.0
"""A launch alone is timed with its latency, up to 20 us, and a warm L2: above this, neither matters."""
_SET_UP_US: Final = 20_000.0
"""The first launch of a kernel may also wait for the driver to make room for its stack: some milliseconds."""


def serve(connection: Connection, device_index: int, trying: Any, command: str) -> None:
    """Entry point of the process; `trying` tells the parent which entry runs, should this process die of it."""
    device = torch.device("cuda", device_index)
    torch.cuda.set_device(device)
    worker = GpuWorker(device, trying)
    timer = worker.timer
    connection.send(Ready(current_environment(worker.hardware, command), timer.flush_bytes, timer.overhead_us))
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if isinstance(message, Stop):
            return
        try:
            reply = worker.run(message)
        except ContextLostError:
            os._exit(CONTEXT_LOST)
        connection.send(reply)


class ContextLostError(Exception):
    """No CUDA call will work in this process any more."""


@dataclass
class _Trial:
    """One entry on its way: a launch that works, or the failure it ended with."""

    entry: Entry
    launch: Callable[[], object] | None = None
    failure: Failure | None = None
    kind: tuple[object, ...] = ()
    errors: torch.Tensor | None = None
    first_us: float = 0.0


class GpuWorker:
    """Loads, checks and times the entries of jobs."""

    def __init__(self, device: torch.device, trying: Any) -> None:
        self.device = device
        self.hardware = current_hardware(str(device))
        self.timer = InterleavedTimer(device, self.hardware.l2_bytes or 0)
        self._loader = KernelLoader(device, self.hardware.shared_memory_per_block or 0)
        self._kernels: dict[str, CompiledKernel] = {}
        self._found_right: set[tuple[object, ...]] = set()
        self._trying = trying
        self._clock = ClockReader(device)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def run(self, job: Job) -> Done | Broken:
        started = time.perf_counter()
        discarded = self.timer.discarded
        try:
            operands = Operands(job.problem, self.device)
            trials = self._try_all(job, operands)
        except torch.cuda.OutOfMemoryError as error:
            return Broken(job.number, f"{job.problem}: {_first_line(error)}")
        tried = time.perf_counter()
        self._trying.value = -1
        samples = self._sample(trials, job.repeats, lambda: time.perf_counter() - tried)
        clock = self._clock.read()
        outcomes = tuple(
            Outcome(trial.entry.choice, None, trial.failure)
            if trial.failure is not None
            else _outcome(trial.entry.choice, sampled, clock)
            for trial, sampled in zip(trials, samples, strict=True)
        )
        ended = time.perf_counter()
        return Done(job.number, outcomes, tried - started, ended - tried, self.timer.discarded - discarded)

    def _sample(self, trials: list[_Trial], repeats: Repeats, elapsed: Callable[[], float]) -> list[Sampled | None]:
        """For each trial its samples; a choice whose long first launch was hopeless is not launched again."""
        samples: list[Sampled | None] = [None] * len(trials)
        working = [number for number, trial in enumerate(trials) if trial.failure is None]
        best = min((trials[number].first_us for number in working), default=0.0)
        bound = max(repeats.hopeless * best, _FIRST_LAUNCH_COUNTS_US)
        # A library's first launch says nothing: it chooses and sets up its kernels then.
        wanted = [n for n in working if trials[n].entry.kernel is None or trials[n].first_us <= bound]
        for number in set(working).difference(wanted):
            samples[number] = Sampled((trials[number].first_us,))
        launches = [launch for number in wanted if (launch := trials[number].launch) is not None]
        timed = self._guarded(lambda: sample_all(self.timer, launches, repeats, elapsed))
        for number, sampled in zip(wanted, timed, strict=True):
            samples[number] = sampled
        return samples

    def _try_all(self, job: Job, operands: Operands) -> list[_Trial]:
        """Launches each entry once, alone, so that one that kills the context is known by name."""
        trials = []
        for number, entry in enumerate(job.entries):
            self._trying.value = number
            trial = _Trial(entry)
            trials.append(trial)
            trial.launch, trial.failure = self._prepare(entry, operands)
            if trial.launch is None:
                continue
            if job.check:
                trial.kind = _kind(job, entry)
            check = job.check and trial.kind not in self._found_right
            if check:
                operands.poison()
            trial.failure = self._first_launch(trial.launch)
            if trial.failure is None and check:
                trial.errors = operands.errors()
            self._guarded(torch.cuda.synchronize)
            if trial.failure is None:
                trial.first_us = self._first_us()
                if _FIRST_LAUNCH_COUNTS_US < trial.first_us < _SET_UP_US:
                    self._first_launch(trial.launch)
                    self._guarded(torch.cuda.synchronize)
                    trial.first_us = min(trial.first_us, self._first_us())
        checked = [trial for trial in trials if trial.errors is not None]
        if checked:
            measured = self._guarded(
                torch.stack([trial.errors for trial in checked if trial.errors is not None]).tolist
            )
            for trial, errors in zip(checked, measured, strict=True):
                wrong = operands.verdict(*errors)
                if wrong is None:
                    self._found_right.add(trial.kind)
                else:
                    trial.failure = Failure("wrong_result", wrong)
        return trials

    def _prepare(self, entry: Entry, operands: Operands) -> tuple[Callable[[], object] | None, Failure | None]:
        if entry.kernel is None:
            launch = operands.backend_launch(entry.choice)
            return launch, None if launch else Failure("unknown", "no such kernel in this PyTorch")
        kernel = self._read(entry.kernel.path)
        arguments = [operands.pointer(name) for name, kind in entry.kernel.signature if kind.startswith("*")]
        try:
            return self._loader.launch(
                kernel, entry.kernel.signature, entry.kernel.grid, (*arguments, *entry.kernel.sizes)
            ), None
        except KernelLoadError as error:
            return None, Failure(_load_failure(error.reason), str(error))
        except RuntimeError as error:
            return None, Failure("registers", _first_line(error))

    def _first_launch(self, launch: Callable[[], object]) -> Failure | None:
        start, end = self._events
        start.record()
        try:
            launch()
        except RuntimeError as error:
            self._guarded(torch.cuda.synchronize)
            return Failure("crash", _first_line(error))
        end.record()
        return None

    def _first_us(self) -> float:
        start, end = self._events
        return float(start.elapsed_time(end)) * 1000.0

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """A CUDA error here is an earlier kernel's and leaves no usable context."""
        try:
            return action()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ContextLostError(str(error)) from error

    def _read(self, path: str) -> CompiledKernel:
        kernel = self._kernels.get(path)
        if kernel is None:
            if len(self._kernels) >= _KERNELS_IN_MEMORY:
                self._kernels.clear()
                self._loader.forget()
            kernel = self._kernels[path] = read_kernel(Path(path))
        return kernel


def _kind(job: Job, entry: Entry) -> tuple[object, ...]:
    """A result is checked once for each kernel and whatever could make it right on one problem and wrong on another."""
    problem = job.problem
    kernel = entry.kernel.path if entry.kernel is not None else (problem.op, problem.a.dtype, problem.layout)
    return (
        entry.choice,
        kernel,
        problem.allow_tf32,
        problem.bias is None,
        problem.B == 1,
        _divisibility(entry.choice, problem.M, problem.N, problem.K),
    )


def _divisibility(choice: Choice, m: int, n: int, k: int) -> tuple[object, ...]:
    blocks = tuple(getattr(choice, name, 16) for name in ("block_m", "block_n", "block_k"))
    return tuple(
        (size % 16 == 0, size % block == 0, size < block) for size, block in zip((m, n, k), blocks, strict=True)
    )


def _outcome(choice: Choice, samples: Sampled | None, clock: int | None) -> Outcome:
    if samples is None:
        return Outcome(choice, None, Failure("timeout", "no sample free of launch latency could be had"))
    timing = Timing(
        time_us=round(samples.median, 4),
        min_us=round(samples.minimum, 4),
        spread=None if samples.spread is None else round(samples.spread, 5),
        repeats=len(samples.samples),
        clock_mhz=clock,
    )
    return Outcome(choice, timing, None)


def _load_failure(reason: str) -> Any:
    return reason if reason in ("shared_memory", "registers") else "unknown"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]
