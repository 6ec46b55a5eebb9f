"""What is said to the commands that train, and what it means."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from diode.errors import UsageError

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


def fit_settings(
    seed: int,
    model_type: ModelTypeName,
    *,
    batch_size: int | None = None,
    num_epochs: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    patience: int | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    members: int | None = None,
    train_device: str = "cpu",
    tensorboard: Path | None = None,
    name: str,
    version: str,
) -> FitSettings:
    """What is None stays as the best model has it."""
    from diode.model.fitting import FitSettings

    if model_type is ModelTypeName.gbdt:
        _refuse_of_trees(
            batch_size=batch_size,
            weight_decay=weight_decay,
            patience=patience,
            hidden_size=hidden_size,
            layers=layers,
            members=members,
            tensorboard=tensorboard,
        )
    usual = FitSettings()
    return FitSettings(
        type=model_type.value,
        name=name,
        version=version,
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
            seed=seed,
            device=train_device,
        ),
        trees=replace(
            usual.trees,
            trees=num_epochs or usual.trees.trees,
            learning_rate=learning_rate or usual.trees.learning_rate,
            seed=seed,
        ),
    )


def _refuse_of_trees(**of_networks: float | Path | None) -> None:
    said = [f"--{name.replace('_', '-')}" for name, value in of_networks.items() if value is not None]
    if said:
        raise UsageError(f"--model-type gbdt: trees have no {', '.join(said)}; leave that out, or train a network")
