"""Compiles a sweep's kernels ahead of it, on any machine: the GPU's time then goes into timing alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from diode.collection.kernels.compiler import CompileTarget
from diode.collection.kernels.pool import Compiled, CompileTask, Planned, PlanTask, WorkerPool
from diode.collection.kernels.store import kernel_path
from diode.collection.planning import PlanRequest
from diode.collection.sweep import KERNELS_PER_TASK, SweepSettings
from diode.types import Hardware, MMShape


@dataclass
class AheadProgress:
    """What a display shows of compiling ahead."""

    problems: int
    problems_planned: int = 0
    problems_failed: int = 0
    """Those that could not be planned."""
    kernels: int = 0
    compiled: int = 0
    failed: int = 0


def compile_ahead(
    problems: Iterable[MMShape],
    settings: SweepSettings,
    hardware: Hardware,
    pool: WorkerPool,
    store: Path,
    should_stop: Callable[[], bool],
    show: Callable[[AheadProgress], None],
) -> AheadProgress:
    """Fills `store` with the first-round kernels of `problems`, in their order, until done or told to stop."""
    waiting = deque(problems)
    progress = AheadProgress(len(waiting))
    target = CompileTarget.of(hardware)
    known: set[str] = set()
    planning = 0
    while (waiting or planning or pool.busy) and not should_stop():
        while waiting and planning < pool.size and pool.backlog < 4 * pool.size:
            request = PlanRequest(waiting.popleft(), hardware, settings.space, settings.sample, form=settings.form)
            pool.submit(PlanTask(planning, request), urgent=True)
            planning += 1
        for result in pool.results(0.2):
            if isinstance(result, Planned):
                planning -= 1
                progress.problems_planned += 1
                planned = [choice.kernel for choice in result.problem.choices if choice.kernel is not None]
                kernels = {kernel.key: kernel.source for kernel in planned}
                fresh = [(key, kernels[key]) for key in kernels if key not in known]
                known.update(kernels)
                progress.kernels += len(fresh)
                missing = [(key, source) for key, source in fresh if not kernel_path(store, key).exists()]
                progress.compiled += len(fresh) - len(missing)
                for first in range(0, len(missing), KERNELS_PER_TASK):
                    pool.submit(CompileTask(tuple(missing[first : first + KERNELS_PER_TASK]), target, str(store)))
            elif isinstance(result, Compiled):
                progress.failed += sum(failure is not None for _, failure in result.failures)
                progress.compiled += sum(failure is None for _, failure in result.failures)
            elif isinstance(result.task, PlanTask):
                planning -= 1
                progress.problems_failed += 1
            elif len(result.task.kernels) > 1:
                # One of them did it; alone, each gets its own verdict.
                for kernel in result.task.kernels:
                    pool.submit(replace(result.task, kernels=(kernel,)))
            else:
                progress.failed += 1
            show(progress)
    return progress
