"""The progress of a training: a bar with losses and regret, and TensorBoard logs where asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from diode.errors import FileAccessError, MissingDependencyError
from diode.model.training import EpochReport

_LINES_PER_MEMBER = 5
"""In a log, where a bar cannot be drawn."""


class TrainingDisplay:
    """Call it with each epoch's report."""

    def __init__(self, console: Console, tensorboard: Path | None = None) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[int, Any] = {}
        self._writer = None if tensorboard is None else _summary_writer(tensorboard)

    def __enter__(self) -> TrainingDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._writer is not None:
            self._writer.close()

    def __call__(self, report: EpochReport) -> None:
        figures = (
            f"loss {report.training_loss:.3f}, validation {report.validation_loss:.3f}, "
            f"regret {report.regret_at_1:.2%} with 1, {report.regret_at_3:.2%} with 3"
        )
        name = f"network {report.member}/{report.members}"
        task = self._tasks.get(report.member)
        if task is None:
            task = self._tasks[report.member] = self._bar.add_task(name, total=report.epochs, figures="")
        self._bar.update(task, completed=report.epoch, figures=figures)
        if self._bar.disable and report.epoch % max(1, math.ceil(report.epochs / _LINES_PER_MEMBER)) == 0:
            self._console.print(f"{name}, epoch {report.epoch}/{report.epochs}: {figures}", markup=False)
        if self._writer is not None:
            self._log(report)

    def _log(self, report: EpochReport) -> None:
        assert self._writer is not None
        scalars = {
            "loss/training": report.training_loss,
            "loss/validation": report.validation_loss,
            "regret/1": report.regret_at_1,
            "regret/3": report.regret_at_3,
            "learning_rate": report.learning_rate,
        }
        for name, value in scalars.items():
            self._writer.add_scalar(f"network{report.member}/{name}", value, report.epoch)


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingDependencyError("tensorboard", "--tensorboard", "tensorboard") from error
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise FileAccessError(
            f"--tensorboard {folder}: cannot be written: {error.strerror or error}; name a folder"
        ) from error
