"""One collection as a command runs it: with progress, a summary, and a word on what is left."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from diode.cli.console import err, out
from diode.cli.durations import duration, parse_duration
from diode.cli.exit_codes import STOPPED
from diode.cli.tables import print_statistics
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.collection.sweep import SweepSettings
from diode.errors import CollectionError
from diode.storage import statistics
from diode.types import MMShape

if TYPE_CHECKING:
    from diode.collection.run import CollectionPlan, CollectionResult
    from diode.storage.files import DatasetFormat


@dataclass(frozen=True)
class Measuring:
    """How it is measured, whatever is."""

    device: str
    budget_seconds: float | None = None
    processes: int | None = None
    format: DatasetFormat | None = None

    @classmethod
    def of(cls, context: typer.Context, device: str | None, budget: str | None, processes: int | None) -> Measuring:
        seconds = None if budget is None else parse_duration(budget, "--budget")
        return cls(device or _device_at_hand(), seconds, processes, context.obj.format)

    def plan(self, problems: tuple[MMShape, ...], settings: SweepSettings, output: Path) -> CollectionPlan:
        from diode.collection.run import CollectionPlan

        return CollectionPlan(
            problems=problems,
            output=output,
            settings=settings,
            format=self.format,
            device=self.device,
            budget_seconds=self.budget_seconds,
            compile_processes=self.processes,
            command=shlex.join(["diode", *sys.argv[1:]]),
        )


def measure(plan: CollectionPlan) -> None:
    """Leaves by itself when it was told to stop; when only the budget is spent, what comes after may go on."""
    from diode.cli.progress import CollectionDisplay
    from diode.collection.run import run_collection

    unheard = _unheard(plan)
    if plan.device == "cpu" and unheard:
        err.print(
            f"{', '.join(unheard)}: without effect with --device cpu, where Inductor has a few choices for each "
            "problem and all of them are measured",
            markup=False,
        )
    with CollectionDisplay(err, plan.budget_seconds) as display:
        result = run_collection(plan, display)
    for reason in result.progress.broken:
        err.print(f"not measured: {reason}", markup=False)
    if result.complete and not len(result.dataset):
        plan.output.unlink()
        raise CollectionError(f"{plan.output}: not written, since none of {len(plan.problems)} problems was measured")
    print_statistics(out, statistics(result.dataset))
    rate = result.progress.measurements / result.seconds
    out.print(
        f"{plan.output}: {len(result.dataset)} measurements, {result.progress.measurements} of them new, "
        f"in {duration(result.seconds)} ({rate:.3g} a second)",
        markup=False,
    )
    if not result.complete:
        left = result.progress.problems - result.progress.problems_done
        err.print(f"stopped with {left} problems left: run the same command again to go on", markup=False)
        if not _out_of_budget(plan, result):
            raise typer.Exit(STOPPED)


def _unheard(plan: CollectionPlan) -> list[str]:
    """What was said that a collection on a CPU cannot follow."""
    settings = plan.settings
    said = {
        "--search-space DEFAULT": settings.space == "DEFAULT",
        "--choices": isinstance(settings.sample, ChoiceSample),
        "--choices-from": isinstance(settings.sample, ChoiceList),
        "--kernels static": settings.form == "static",
        "--processes": plan.compile_processes is not None,
    }
    return [option for option, is_said in said.items() if is_said]


def _out_of_budget(plan: CollectionPlan, result: CollectionResult) -> bool:
    return plan.budget_seconds is not None and result.seconds >= plan.budget_seconds


def _device_at_hand() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
