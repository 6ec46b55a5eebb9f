"""The commands that make models: train, collect-and-train."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from diode.cli.console import err, out
from diode.cli.durations import duration
from diode.errors import UsageError
from diode.storage import filter_dataset, read_dataset
from diode.storage.files import dataset_files
from diode.types import Dataset, DatasetBuilder, MMShape

if TYPE_CHECKING:
    from diode.model.fitting import FitSettings


class ModelTypeName(str, Enum):
    deep = "deep"
    base = "base"
    gbdt = "gbdt"


DatasetFile: TypeAlias = Annotated[Path | None, typer.Option("--dataset", help="A data set to train on.")]
DataDir: TypeAlias = Annotated[Path | None, typer.Option(help="A folder of data sets to train on.")]
ModelFile: TypeAlias = Annotated[
    Path,
    typer.Option("--model", help="Where the model goes: .safetensors or .pt; .txt for gbdt. Its card goes beside."),
]
TypeOption: TypeAlias = Annotated[ModelTypeName, typer.Option("--model-type", help="deep ranks best.")]
BatchSize: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Problems in one step, each with its choices.")]
Epochs: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Epochs; for gbdt, trees.")]
Rate: TypeAlias = Annotated[float | None, typer.Option(min=1e-9, help="Highest learning rate of the schedule.")]
Decay: TypeAlias = Annotated[float | None, typer.Option(min=0.0, help="Weight decay.")]
Patience: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Epochs without a better validation to wait.")]
Hidden: TypeAlias = Annotated[int | None, typer.Option(min=1, max=4096, help="Width of the network.")]
Layers: TypeAlias = Annotated[int | None, typer.Option(min=1, max=64, help="Depth of the network.")]
Members: TypeAlias = Annotated[int | None, typer.Option(min=1, max=64, help="Networks that predict together.")]
Extensions: TypeAlias = Annotated[
    str, typer.Option(help="Which files of --data-dir, as in msgpack,parquet; empty: all that can hold a data set.")
]
HardwareNames: TypeAlias = Annotated[str, typer.Option("--hardware", help="Only measurements of these devices.")]
Ops: TypeAlias = Annotated[str, typer.Option("--ops", help="Only measurements of these ops, as in mm,addmm.")]
TensorBoard: TypeAlias = Annotated[Path | None, typer.Option(help="Write TensorBoard logs into this folder.")]
TrainDevice: TypeAlias = Annotated[str, typer.Option("--train-device", help="Where to train: cpu or cuda.")]
NameOption: TypeAlias = Annotated[str, typer.Option("--name", help="Name of the model, for its card.")]
VersionOption: TypeAlias = Annotated[str, typer.Option("--model-version", help="Version of the model, for its card.")]


def train(
    context: typer.Context,
    model: ModelFile,
    dataset: DatasetFile = None,
    data_dir: DataDir = None,
    model_type: TypeOption = ModelTypeName.deep,
    batch_size: BatchSize = None,
    num_epochs: Epochs = None,
    learning_rate: Rate = None,
    weight_decay: Decay = None,
    patience: Patience = None,
    hidden_size: Hidden = None,
    layers: Layers = None,
    members: Members = None,
    file_extensions: Extensions = "",
    hardware: HardwareNames = "",
    ops: Ops = "",
    tensorboard: TensorBoard = None,
    train_device: TrainDevice = "cpu",
    name: NameOption = "diode-matmul",
    model_version: VersionOption = "1",
) -> None:
    """Train a model on measurements; the defaults make the best one. Interrupted, it goes on when started again."""
    from diode.model.fitting import FitSettings, check_model_path

    if (dataset is None) == (data_dir is None):
        raise UsageError("give either --dataset FILE or --data-dir FOLDER")
    check_model_path(model, model_type.value)
    usual = FitSettings()
    settings = FitSettings(
        type=model_type.value,
        name=name,
        version=model_version,
        network=replace(
            usual.network,
            batch_size=batch_size or usual.network.batch_size,
            epochs=num_epochs or usual.network.epochs,
            learning_rate=learning_rate or usual.network.learning_rate,
            weight_decay=usual.network.weight_decay if weight_decay is None else weight_decay,
            patience=patience or usual.network.patience,
            hidden=hidden_size or usual.network.hidden,
            layers=layers or usual.network.layers,
            members=members or usual.network.members,
            seed=context.obj.seed,
            device=train_device,
        ),
        trees=replace(
            usual.trees,
            trees=num_epochs or usual.trees.trees,
            learning_rate=learning_rate or usual.trees.learning_rate,
            seed=context.obj.seed,
        ),
    )
    files = dataset_files(dataset or data_dir or Path(), file_extensions.split(",") if file_extensions else None)
    _train(files, settings, model, _filter(hardware, ops), tensorboard)


def _filter(hardware: str, ops: str) -> Callable[[Dataset], Dataset]:
    def keep(dataset: Dataset) -> Dataset:
        kept = filter_dataset(dataset, hardware=_names(hardware), op=_names(ops))
        if len(dataset) and not len(kept):
            there = sorted({environment.hardware.name for environment in dataset.environments})
            there_ops = sorted({problem.op for problem in dataset.problems})
            raise UsageError(
                f"--hardware {hardware!r} --ops {ops!r} leave no measurement: the data are of {', '.join(there)}, "
                f"ops {', '.join(there_ops)}"
            )
        return kept

    return keep


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _train(
    files: list[Path],
    settings: FitSettings,
    model: Path,
    keep: Callable[[Dataset], Dataset],
    tensorboard: Path | None,
) -> None:
    from diode.cli.training_display import TrainingDisplay
    from diode.model.card import TrainingData
    from diode.model.checkpoint import Checkpoint
    from diode.model.fitting import fit, save_model
    from diode.settings import named_commit

    started = time.monotonic()
    builder, sources, digest = DatasetBuilder(), [], hashlib.sha256()
    for file in files:
        part = keep(read_dataset(file))
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        problems = sum(isinstance(problem, MMShape) for problem in part.problems)
        sources.append(TrainingData(file.name, sha256, int(part.succeeded.sum()), problems))
        digest.update(sha256.encode())
        builder.extend(part)
    data = builder.build()
    if not len(data):
        raise UsageError(f"{', '.join(map(str, files))}: no measurement to train on")
    identity = json.dumps([asdict(settings), digest.hexdigest(), len(data)], sort_keys=True)
    checkpoint = Checkpoint(model.with_name(model.name + ".checkpoint"), hashlib.sha256(identity.encode()).hexdigest())
    err.print(
        f"training {settings.type} on {int(data.succeeded.sum())} measurements of {len(data.problems)} problems"
        + (", from where it was stopped" if checkpoint.begun else ""),
        markup=False,
    )
    with TrainingDisplay(err, tensorboard) as display:
        fitted = fit(data, settings, sources, display, checkpoint)
    described = msgspec.structs.replace(
        fitted.card, command=shlex.join(["diode", *sys.argv[1:]]), commit=named_commit()
    )
    card = save_model(replace(fitted, card=described), model)
    checkpoint.remove()
    size = model.stat().st_size
    figures = ", ".join(f"{name} {value:.3g}" for name, value in card.metrics.items())
    out.print(
        f"{model}: {card}, {size / 1e6:.2f} MB, in {duration(time.monotonic() - started)}; {figures}", markup=False
    )
