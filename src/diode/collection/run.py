"""One collection from its plan to its file: device, processes, journal, time budget, and a clean stop."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from diode.collection.executors import Executor, ProcessPerGpu
from diode.collection.journal import Journal
from diode.collection.kernels.pool import WorkerPool
from diode.collection.order import in_turns
from diode.collection.sweep import Sweep, SweepProgress, SweepSettings
from diode.errors import FileAccessError, UnsupportedError, UsageError
from diode.settings import cache_folder
from diode.storage.files import DatasetFormat, dataset_format, write_dataset
from diode.types import Dataset, MMShape

JOURNAL_SUFFIX = ".journal"

Show = Callable[[SweepProgress], None]


@dataclass(frozen=True)
class CollectionPlan:
    """What to measure, on what, into which file."""

    problems: tuple[MMShape, ...]
    output: Path
    settings: SweepSettings = field(default_factory=SweepSettings)
    format: DatasetFormat | None = None
    device: str = "cuda"
    """`cuda` for all GPUs of this machine, `cuda:0,2` for some of them, `cpu`."""
    budget_seconds: float | None = None
    compile_processes: int | None = None
    """How many processes plan and compile; by default one for each core that this process may use."""
    command: str = ""

    @property
    def journal(self) -> Path:
        """Where results are kept until the collection is complete."""
        return self.output.with_name(self.output.name + JOURNAL_SUFFIX)

    def identity(self, hardware: str) -> str:
        """Equal for plans that measure the same; budget, processes and command do not matter."""
        digest = hashlib.sha256(msgspec.json.encode(self.problems))
        digest.update(repr((self.settings, hardware)).encode())
        return f"{len(self.problems)} problems on {hardware}, {digest.hexdigest()[:32]}"


@dataclass(frozen=True)
class CollectionResult:
    """`dataset` is what the output holds now; `complete` says whether nothing is left to measure."""

    dataset: Dataset
    complete: bool
    progress: SweepProgress
    seconds: float


def run_collection(plan: CollectionPlan, show: Show = lambda progress: None) -> CollectionResult:
    """Measures until done, out of budget, or told to stop by Ctrl-C or SIGTERM; then writes what there is.

    A collection that was stopped goes on from its journal when the same plan is run again.
    """
    check_output(plan)
    started = time.monotonic()
    with ExitStack() as stack:
        stopped = stack.enter_context(asked_to_stop())
        executor = _executor(plan)
        stack.callback(executor.close)
        identity = plan.identity(executor.environment.hardware.name)
        journal = stack.enter_context(Journal(plan.journal, identity))
        pool = None
        if not executor.chooses_itself:
            pool = WorkerPool(plan.compile_processes or len(os.sched_getaffinity(0)))
            stack.callback(pool.close)
        store = cache_folder() / "kernels"
        sweep = Sweep(in_turns(plan.problems), plan.settings, executor, pool, journal, store)

        def should_stop() -> bool:
            over = plan.budget_seconds is not None and time.monotonic() - started > plan.budget_seconds
            return over or stopped.is_set()

        complete = sweep.run(should_stop, show)
        dataset = journal.dataset()
    write_dataset(dataset, plan.output, plan.format)
    if complete:
        plan.journal.unlink()
    return CollectionResult(dataset, complete, sweep.progress, time.monotonic() - started)


def check_output(plan: CollectionPlan) -> None:
    """Refuses before anything is measured what could not be written after."""
    dataset_format(plan.output, plan.format)
    if not plan.output.parent.is_dir():
        raise FileAccessError(f"{plan.output}: its folder does not exist; create it or name another --output")
    if plan.output.exists() and not plan.journal.exists():
        raise UsageError(f"{plan.output}: exists already; remove it or name another --output")


def _executor(plan: CollectionPlan) -> Executor:
    kind, _, numbers = plan.device.partition(":")
    if kind == "cpu" and not numbers:
        from diode.collection.cpu import CpuExecutor

        return CpuExecutor(command=plan.command)
    if kind != "cuda":
        raise UsageError(f"--device {plan.device}: use cpu, cuda, or cuda:0,1")
    import torch

    if not torch.cuda.is_available():
        raise UnsupportedError(
            "no CUDA device can be used here: check the driver and that this torch is a CUDA build, "
            "or measure Inductor's choices for the CPU with --device cpu"
        )
    count = torch.cuda.device_count()
    try:
        indices = [int(number) for number in numbers.split(",")] if numbers else list(range(count))
    except ValueError as error:
        raise UsageError(f"--device {plan.device}: GPUs are named by number, as in cuda:0,1") from error
    missing = [index for index in indices if not 0 <= index < count]
    if missing or len(set(indices)) != len(indices):
        raise UsageError(f"--device {plan.device}: this machine has {count} GPUs, numbered from 0; name each once")
    return ProcessPerGpu(indices, plan.command)


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM; a second one has its usual effect."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _frame: object) -> None:
        stopped.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
