"""The command that does it all: training data, validation set, model, validation. What is done is not repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from diode.cli.collection_options import (
    Budget,
    Choices,
    Device,
    Dtypes,
    Group,
    KernelFormName,
    Kernels,
    Layouts,
    LogNormal,
    MaxGflop,
    NumShapes,
    Ops,
    Processes,
    SamplerOption,
    SearchSpaceName,
    ShareChoices,
    Space,
    sampler_of,
    settings_of,
)
from diode.cli.collection_run import Measuring, measure
from diode.cli.console import err
from diode.cli.devices import check_model_device
from diode.cli.steps import Steps
from diode.cli.training_options import (
    BatchSize,
    Decay,
    Epochs,
    Hidden,
    Layers,
    Members,
    ModelTypeName,
    Patience,
    Rate,
    TensorBoard,
    TrainDevice,
    TypeOption,
    fit_settings,
)
from diode.cli.training_run import read_material, train_on
from diode.cli.validate import validate_model
from diode.collection.run import CollectionPlan
from diode.collection.samplers import Sampler
from diode.errors import FileAccessError, UsageError
from diode.types import MMShape

OutputDir: TypeAlias = Annotated[Path, typer.Option(help="The folder for all that is made; it is created.")]
ValidationShapes: TypeAlias = Annotated[
    int, typer.Option(min=1, help="How many problems, no twin of which is in training, the model is judged by.")
]
SkipCollection: TypeAlias = Annotated[
    bool, typer.Option("--skip-collection", help="Train on the training data that are there.")
]
SkipValidationSet: TypeAlias = Annotated[
    bool, typer.Option("--skip-validation-set", help="Judge by the validation set that is there.")
]
SkipTraining: TypeAlias = Annotated[bool, typer.Option("--skip-training", help="Judge the model that is there.")]
SkipValidation: TypeAlias = Annotated[bool, typer.Option("--skip-validation", help="Do not judge the model.")]


def collect_and_train(
    context: typer.Context,
    output_dir: OutputDir,
    num_shapes: NumShapes = 100,
    validation_shapes: ValidationShapes = 30,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    log_normal: LogNormal = False,
    sampler: SamplerOption = None,
    group: Group = 1,
    ops: Ops = "",
    dtypes: Dtypes = "",
    layouts: Layouts = "",
    max_gflop: MaxGflop = None,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    processes: Processes = None,
    model_type: TypeOption = ModelTypeName.deep,
    batch_size: BatchSize = None,
    num_epochs: Epochs = None,
    learning_rate: Rate = None,
    weight_decay: Decay = None,
    patience: Patience = None,
    hidden_size: Hidden = None,
    layers: Layers = None,
    members: Members = None,
    tensorboard: TensorBoard = None,
    train_device: TrainDevice = "cpu",
    skip_collection: SkipCollection = False,
    skip_validation_set: SkipValidationSet = False,
    skip_training: SkipTraining = False,
    skip_validation: SkipValidation = False,
) -> None:
    """Measure training data and a validation set, train on the one, and judge by the other.

    --budget holds for each of the two collections. Started again, it goes on where it was stopped.
    """
    how = Measuring.of(context, device, budget, processes)
    seed = context.obj.seed
    check_model_device(train_device, "--train-device")
    settings = fit_settings(
        seed,
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
        name="diode-matmul",
        version="1",
    )

    def draws(from_seed: int) -> Sampler:
        return sampler_of(from_seed, log_normal, sampler, group, ops, dtypes, layouts, max_gflop)

    problems = draws(seed).sample(num_shapes)
    folder = _folder(output_dir)
    suffix = f".{how.format or 'parquet'}"
    training, validation = folder / f"training{suffix}", folder / f"validation{suffix}"
    model = folder / ("model.txt" if model_type is ModelTypeName.gbdt else "model.safetensors")
    if skip_collection and not skip_training:
        _must_be_there(training, "--skip-collection")
    if skip_validation_set and not skip_validation:
        _must_be_there(validation, "--skip-validation-set", " or judge nothing, with --skip-validation")
    if skip_training and not skip_validation:
        _must_be_there(model, "--skip-training")
    steps = Steps(folder)
    if not skip_collection:
        sampled = settings_of(seed, search_space, choices, None, kernels, shared=share_choices, confirm=False)
        _collect(steps, "collection", how.plan(problems, sampled, training))
    if not skip_validation_set:
        whole = settings_of(seed, search_space, None, None, kernels, shared=False, confirm=True)
        unseen = unrelated_problems(draws(seed + 1), problems, validation_shapes)
        _collect(steps, "validation-set", how.plan(unseen, whole, validation))
    if not skip_training:
        material = read_material([training])
        if steps.stands("training", material.identity(settings), model):
            err.print(f"training: {model} stands", markup=False)
        else:
            train_on(material, settings, model, tensorboard)
            steps.note("training", material.identity(settings))
    if not skip_validation:
        validate_model(model, validation)


def unrelated_problems(sampler: Sampler, known: tuple[MMShape, ...], count: int) -> tuple[MMShape, ...]:
    """The first `count` problems of a sampler that are no twins of known ones."""
    taken = {problem.twin_group for problem in known}
    drawn = count
    while True:
        unrelated = [problem for problem in sampler.sample(drawn) if problem.twin_group not in taken]
        if len(unrelated) >= count:
            return tuple(unrelated[:count])
        drawn += max(count - len(unrelated), drawn // 2)


def _collect(steps: Steps, step: str, plan: CollectionPlan) -> None:
    # The budget, like the number of processes, decides how much is measured in one go, not what in the end.
    identity = replace(plan, budget_seconds=None).identity(plan.device)
    begun = plan.journal.exists()
    if not begun and steps.stands(step, identity, plan.output):
        err.print(f"{step}: {plan.output} stands", markup=False)
        return
    if not begun and plan.output.exists():
        raise UsageError(
            f"{plan.output}: is from other arguments; name another --output-dir, or take it as it is with --skip-{step}"
        )
    err.print(f"{step}: {len(plan.problems)} problems on {plan.device}", markup=False)
    measure(plan)
    if not plan.journal.exists():
        steps.note(step, identity)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileAccessError(f"{path}: cannot be a folder: {error.strerror}; name another --output-dir") from error
    return path


def _must_be_there(path: Path, option: str, otherwise: str = "") -> None:
    if not path.exists():
        raise UsageError(f"{path}: is not there; leave out {option}{otherwise}")
