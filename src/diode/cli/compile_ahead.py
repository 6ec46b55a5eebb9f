"""The command that compiles a sweep's kernels beforehand: on a machine without a GPU, for one that is elsewhere."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diode.cli.collection_options import (
    Budget,
    Choices,
    ChoicesFrom,
    KernelFormName,
    Kernels,
    Processes,
    SearchSpaceName,
    ShareChoices,
    Space,
    settings_of,
)
from diode.cli.console import err, out
from diode.cli.durations import duration, parse_duration
from diode.cli.exit_codes import STOPPED
from diode.cli.listed_problems import OnlyOps, Shapeset, Without, listed_problems
from diode.cli.progress import Ticker
from diode.errors import UsageError
from diode.settings import cache_folder
from diode.storage import read_dataset
from diode.types import Hardware
from diode.types.known_hardware import KNOWN_HARDWARE

if TYPE_CHECKING:
    from diode.collection.ahead import AheadProgress

Gpu = Annotated[
    str,
    typer.Option(
        "--hardware",
        help=f"The GPU to compile for: {', '.join(KNOWN_HARDWARE)}, or a data set that was measured on one like it.",
    ),
]


def compile_ahead(
    context: typer.Context,
    shapeset: Shapeset,
    hardware: Gpu = "h200",
    ops: OnlyOps = "",
    without: Without = None,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    kernels: Kernels = KernelFormName.family,
    budget: Budget = None,
    processes: Processes = None,
) -> None:
    """Compile the kernels that collect-shapeset would measure, with the same options; no GPU is needed.

    They are kept in the folder kernels of DIODE_CACHE. Take it to the machine with the GPU, and a collection there
    times what it finds instead of compiling it. Torch and triton must be of the same versions on both.
    """
    from diode.collection.ahead import compile_ahead as compile_all
    from diode.collection.kernels.pool import WorkerPool
    from diode.collection.order import in_turns
    from diode.collection.run import asked_to_stop

    seconds = None if budget is None else parse_duration(budget, "--budget")
    problems = in_turns(listed_problems(shapeset, ops, without))
    settings = settings_of(
        context.obj.seed, search_space, choices, choices_from, kernels, shared=share_choices, confirm=False
    )
    gpu, store = hardware_named(hardware), cache_folder() / "kernels"
    started = time.monotonic()
    pool = WorkerPool(processes or len(os.sched_getaffinity(0)))
    try:
        with asked_to_stop() as stopped, Ticker(err) as ticker:

            def should_stop() -> bool:
                return stopped.is_set() or (seconds is not None and time.monotonic() - started > seconds)

            done = compile_all(
                problems, settings, gpu, pool, store, should_stop, lambda progress: ticker.tell(lambda: _line(progress))
            )
    finally:
        pool.close()
    out.print(f"{store}: {_line(done)}, in {duration(time.monotonic() - started)}", markup=False)
    if done.problems_planned + done.problems_failed < done.problems or done.compiled + done.failed < done.kernels:
        err.print("stopped before all was compiled: run the same command again to go on", markup=False)
        if stopped.is_set():
            raise typer.Exit(STOPPED)


def hardware_named(name: str) -> Hardware:
    """A GPU that diode knows by name, or the one that a data set was measured on."""
    known = KNOWN_HARDWARE.get(name.lower())
    if known is not None:
        return known
    if not Path(name).is_file():
        raise UsageError(f"--hardware {name}: is neither {', '.join(KNOWN_HARDWARE)} nor the file of a data set")
    devices = {environment.hardware for environment in read_dataset(Path(name)).environments}
    gpus = [device for device in devices if device.device_type == "cuda"]
    if len(gpus) != 1:
        raise UsageError(f"--hardware {name}: was measured on {len(gpus)} kinds of GPU; name a data set of one")
    return gpus[0]


def _line(progress: AheadProgress) -> str:
    parts = [
        f"{progress.problems_planned}/{progress.problems} problems",
        f"{progress.compiled}/{progress.kernels} kernels",
    ]
    if progress.failed:
        parts.append(f"{progress.failed} that do not compile")
    if progress.problems_failed:
        parts.append(f"{progress.problems_failed} problems that cannot be planned")
    return ", ".join(parts)
