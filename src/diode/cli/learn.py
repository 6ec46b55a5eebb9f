"""The command that folds what was learned on this machine into a new model: learn."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from diode.cli.console import err, out
from diode.cli.devices import check_model_device
from diode.cli.training_options import TrainDevice
from diode.cli.training_run import Material, read_material
from diode.errors import UsageError
from diode.storage.files import dataset_files

if TYPE_CHECKING:
    from diode.learning.lessons import Lessons
    from diode.learning.store import Store
    from diode.model.card import ModelCard, TrainingData
    from diode.model.tuning import Tuned


class Learned(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    output: str
    model: str
    autotunings: int
    measurements: int
    problems: int
    left_out: int
    trained_problems: int
    kept_problems: int
    judged_problems: int
    regret_at_1_before: float
    regret_at_1: float
    regret_at_3_before: float
    regret_at_3: float


def learn(
    context: typer.Context,
    store: Annotated[Path, typer.Option(help="The folder that DIODE_LEARN named; it is only read.")],
    model: Annotated[Path, typer.Option(help="The model to go on from.")],
    output: Annotated[Path, typer.Option(help="Where the new model goes: .safetensors or .pt. Its card goes beside.")],
    dataset: Annotated[
        list[Path] | None,
        typer.Option(help="Data that the model was trained on, or a folder of them: some are learned again."),
    ] = None,
    num_epochs: Annotated[int, typer.Option(min=1, help="Epochs.")] = 12,
    learning_rate: Annotated[float, typer.Option(min=1e-9, help="Highest learning rate of the schedule.")] = 5e-4,
    model_version: Annotated[
        str | None, typer.Option(help="Version of the new model; else the old one's with the day.")
    ] = None,
    train_device: TrainDevice = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Make a new model of a model and of what this machine's compiles have measured."""
    from diode.cli.training_display import TrainingDisplay
    from diode.integration.device import running_commit
    from diode.learning.lessons import lessons_of
    from diode.learning.store import Store
    from diode.model.fitting import save_model
    from diode.model.tuning import TuningSettings, tune
    from diode.model.version import next_version
    from diode.model.wrapper import ModelWrapper

    base = ModelWrapper(model)
    _check(base.card, model, output)
    check_model_device(train_device, "--train-device")
    found = Store.read_whole(store)
    lessons = lessons_of(found.autotunings, base.model)
    _check_lessons(store, lessons)
    kept = None if dataset is None else read_material([file for path in dataset for file in dataset_files(path)])
    settings = TuningSettings(num_epochs, learning_rate, context.obj.seed, train_device)
    err.print(
        f"learning from {int(lessons.dataset.succeeded.sum())} measurements of {lessons.problems} problems"
        + ("" if kept is None else f", beside some of {len(kept.dataset.problems)} that are to be kept"),
        markup=False,
    )
    data = _sources(store, found, lessons, kept)
    version = model_version or next_version(base.card.version, _versions_in(output.parent))
    with TrainingDisplay(err) as display:
        tuned = tune(base, lessons.dataset, None if kept is None else kept.dataset, settings, version, data, display)
    described = msgspec.structs.replace(
        tuned.fitted.card, command=shlex.join(["diode", *sys.argv[1:]]), commit=running_commit()
    )
    card = save_model(replace(tuned.fitted, card=described), output)
    summary = _summary(output, card, found, lessons, tuned)
    if json:
        out.print_json(msgspec.json.encode(summary).decode())
    else:
        _print(summary)


def _check(card: ModelCard, model: Path, output: Path) -> None:
    from diode.model.fitting import check_model_path

    if card.network is None:
        raise UsageError(f"{model}: a model of type {card.type} cannot go on learning; name a network, or train anew")
    check_model_path(output, "deep")
    if output.resolve().with_suffix("") == model.resolve().with_suffix(""):
        raise UsageError(f"{output}: is the model to go on from; name another --output, so that you can go back")


def _versions_in(folder: Path) -> list[str]:
    """Of the models that the new one will lie beside, where it is to be the one that is found."""
    from diode.model.registry import ModelRegistry

    beside = ModelRegistry()
    beside.add(folder)
    return [pointer.version for pointer in beside.pointers]


def _check_lessons(store: Path, lessons: Lessons) -> None:
    from diode.learning.lessons import FEWEST_PROBLEMS

    if lessons.problems >= FEWEST_PROBLEMS:
        return
    short = f" ({lessons.left_out} more are too short, or have one time only)" if lessons.left_out else ""
    raise UsageError(
        f"{store}: holds {lessons.problems} problems whose times can be compared{short}; {FEWEST_PROBLEMS} are needed: "
        "compile more with DIODE_LEARN set"
    )


def _sources(store: Path, found: Store, lessons: Lessons, kept: Material | None) -> list[TrainingData]:
    from diode.model.card import TrainingData

    name = f"store {store.resolve().name}"
    learned = TrainingData(name, found.digest, int(lessons.dataset.succeeded.sum()), lessons.problems)
    return [*(() if kept is None else kept.sources), learned]


def _summary(output: Path, card: ModelCard, found: Store, lessons: Lessons, tuned: Tuned) -> Learned:
    return Learned(
        output=str(output),
        model=str(card),
        autotunings=len(found.autotunings),
        measurements=int(lessons.dataset.succeeded.sum()),
        problems=lessons.problems,
        left_out=lessons.left_out,
        trained_problems=tuned.trained_problems,
        kept_problems=tuned.kept_problems,
        judged_problems=tuned.after.problems,
        regret_at_1_before=tuned.before.regret_at_1,
        regret_at_1=tuned.after.regret_at_1,
        regret_at_3_before=tuned.before.regret_at_3,
        regret_at_3=tuned.after.regret_at_3,
    )


def _print(summary: Learned) -> None:
    lines = [
        f"{summary.output}: {summary.model}",
        f"learned from {summary.measurements} measurements of {summary.problems} problems in {summary.autotunings} "
        f"autotunings; {summary.left_out} problems left out, too short or without a comparison",
        f"trained on {summary.trained_problems} of them and {summary.kept_problems} that were known before",
        f"judged by the other {summary.judged_problems}: regret with 1 choice {summary.regret_at_1_before:.2%} before, "
        f"{summary.regret_at_1:.2%} now; with 3 {summary.regret_at_3_before:.2%} before, {summary.regret_at_3:.2%} now",
    ]
    if summary.regret_at_1 > summary.regret_at_1_before:
        lines.append("it is worse on these: keep to the old model, or learn again when more was measured")
    for line in lines:
        out.print(line, markup=False)
