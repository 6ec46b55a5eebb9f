"""The command that makes a model."""

from __future__ import annotations

from pathlib import Path

import typer

from diode.cli.devices import check_model_device
from diode.cli.training_options import (
    BatchSize,
    DataDir,
    DatasetFile,
    Decay,
    Epochs,
    Extensions,
    HardwareNames,
    Hidden,
    Layers,
    Members,
    ModelFile,
    ModelTypeName,
    NameOption,
    Ops,
    Patience,
    Rate,
    TensorBoard,
    TrainDevice,
    TypeOption,
    VersionOption,
    fit_settings,
)
from diode.cli.training_run import read_material, train_on
from diode.errors import UsageError
from diode.storage.files import dataset_files


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
    from diode.model.fitting import check_model_path

    if (dataset is None) == (data_dir is None):
        raise UsageError("give either --dataset FILE or --data-dir FOLDER")
    if file_extensions and data_dir is None:
        raise UsageError("--file-extensions picks files of --data-dir; leave it out with --dataset")
    check_model_path(model, model_type.value)
    check_model_device(train_device, "--train-device")
    settings = fit_settings(
        context.obj.seed,
        model_type,
        batch_size=batch_size,
        num_epochs=num_epochs,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        patience=patience,
        hidden_size=hidden_size,
        layers=layers,
        members=members,
        train_device=train_device,
        tensorboard=tensorboard,
        name=name,
        version=model_version,
    )
    files = dataset_files(dataset or data_dir or Path(), file_extensions.split(",") if file_extensions else None)
    train_on(read_material(files, hardware, ops), settings, model, tensorboard)
