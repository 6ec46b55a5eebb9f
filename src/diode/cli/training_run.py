"""One training as a command runs it: reads files, shows progress, writes the model, goes on from a checkpoint."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from diode.cli.console import err, out
from diode.cli.durations import duration
from diode.cli.exit_codes import STOPPED
from diode.errors import UsageError
from diode.storage import filter_dataset, read_dataset
from diode.types import Dataset, DatasetBuilder, MMShape

if TYPE_CHECKING:
    from diode.model.card import TrainingData
    from diode.model.fitting import FitSettings


@dataclass(frozen=True, eq=False)
class Material:
    """What a model is to learn from, and where each part of it comes from."""

    dataset: Dataset
    sources: tuple[TrainingData, ...]

    def identity(self, settings: FitSettings) -> str:
        """Equal for trainings that give the same model."""
        files = [source.sha256 for source in self.sources]
        plain = json.dumps([asdict(settings), files, len(self.dataset)], sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()


def read_material(files: Sequence[Path], hardware: str = "", ops: str = "") -> Material:
    """The measurements of some files, of the hardware and the ops that are named, if any are."""
    from diode.model.card import TrainingData

    builder, sources = DatasetBuilder(), []
    devices: set[str] = set()
    ops_there: set[str] = set()
    for file in files:
        everything = read_dataset(file)
        devices |= {environment.hardware.name for environment in everything.environments}
        ops_there |= {problem.op for problem in everything.problems}
        part = filter_dataset(everything, hardware=_names(hardware), op=_names(ops))
        if not len(part):
            continue
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        problems = sum(isinstance(problem, MMShape) for problem in part.problems)
        sources.append(TrainingData(file.name, sha256, int(part.succeeded.sum()), problems))
        builder.extend(part)
    if not sources and devices:
        raise UsageError(
            f"--hardware {hardware!r} --ops {ops!r} leave no measurement: the data are of "
            f"{', '.join(sorted(devices))}, ops {', '.join(sorted(ops_there))}"
        )
    if not sources:
        raise UsageError(f"{', '.join(map(str, files))}: no measurement to train on")
    return Material(builder.build(), tuple(sources))


def train_on(material: Material, settings: FitSettings, model: Path, tensorboard: Path | None = None) -> None:
    from diode.cli.training_display import TrainingDisplay
    from diode.integration.device import running_commit
    from diode.model.checkpoint import Checkpoint
    from diode.model.fitting import fit, save_model

    started = time.monotonic()
    data = material.dataset
    checkpoint = Checkpoint(model.with_name(model.name + ".checkpoint"), material.identity(settings))
    err.print(
        f"training {settings.type} on {int(data.succeeded.sum())} measurements of {len(data.problems)} problems"
        + (", from where it was stopped" if checkpoint.begun else ""),
        markup=False,
    )
    try:
        with TrainingDisplay(err, tensorboard) as display:
            fitted = fit(data, settings, material.sources, display, checkpoint)
    except KeyboardInterrupt:
        err.print("stopped: run the same command again to go on", markup=False)
        raise typer.Exit(STOPPED) from None
    described = msgspec.structs.replace(
        fitted.card, command=shlex.join(["diode", *sys.argv[1:]]), commit=running_commit()
    )
    card = save_model(replace(fitted, card=described), model)
    checkpoint.remove()
    size = model.stat().st_size
    figures = ", ".join(f"{name} {value:.3g}" for name, value in card.metrics.items())
    out.print(
        f"{model}: {card}, {size / 1e6:.2f} MB, in {duration(time.monotonic() - started)}; {figures}", markup=False
    )


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] or None
