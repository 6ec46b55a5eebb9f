"""`make demo`: measures on this machine, then trains on measurements of an H200 and shows what the model is worth."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich import box
from rich.table import Table

from diode.cli.console import err, fail, microseconds, out
from diode.cli.durations import duration
from diode.errors import DiodeError, UsageError
from diode.types import Dataset, MMShape

if TYPE_CHECKING:
    from diode.collection.run import CollectionPlan
    from diode.model.evaluation import Evaluation, Ranker
    from diode.model.truth import MeasuredProblem, Truth
    from diode.model.wrapper import ModelWrapper

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = Path("build") / "demo"

SEED: Final = 42
_COLLECTION_SECONDS: Final = 75.0
_CHOICES_ON_GPU: Final = 40
_PROBLEM_VISITS: Final = 60_000
"""So many times a training looks at a problem: somewhat under a minute of two CPU cores."""
_FOLDS: Final = 6
_SHOWN: Final = 5


@dataclass(frozen=True)
class Question:
    """What a model is trained on, and the problems, no twin of which is among those, that it is asked about."""

    training: Dataset
    asked: Truth
    exhaustive: bool
    """Whether every legal choice of the asked problems was measured, not a sample."""


def main() -> None:
    started = time.monotonic()
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        written = [collect(), *train_and_judge()]
    except DiodeError as error:
        fail(error)
        sys.exit(1)
    except OSError as error:
        fail(UsageError(f"{FOLDER}: cannot be made here: {error.strerror}; start the demo where it can be"))
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("stopped; what was measured is kept, and the next run goes on from there")
        sys.exit(130)
    _say(f"done in {duration(time.monotonic() - started)}; written:")
    for path in written:
        out.print(f"  {path}", markup=False)


def collect() -> Path:
    """Measures on this machine, whatever it is."""
    from diode.cli.progress import CollectionDisplay
    from diode.cli.tables import print_fastest, print_statistics
    from diode.collection.run import run_collection
    from diode.storage import statistics

    plan = _plan()
    if not plan.journal.exists():
        plan.output.unlink(missing_ok=True)  # an earlier demo's
    _say(
        f"1. measuring {len(plan.problems)} small problems on this machine's {plan.device.upper()}: each kernel that "
        f"Inductor would try is compiled and timed, for {duration(_COLLECTION_SECONDS)} at the most"
    )
    with CollectionDisplay(err, _COLLECTION_SECONDS) as display:
        result = run_collection(plan, display)
    for reason in result.progress.broken:
        err.print(f"not measured: {reason}", markup=False)
    print_statistics(out, statistics(result.dataset))
    print_fastest(out, result.dataset, len(plan.problems))
    return plan.output


def _plan() -> CollectionPlan:
    import torch

    from diode.collection.run import CollectionPlan
    from diode.collection.sampling import ChoiceSample
    from diode.collection.sweep import SweepSettings

    output = FOLDER / "measurements.parquet"
    if torch.cuda.is_available():
        on_gpu = (
            MMShape.of("mm", 16, 4096, 4096, layout="NT"),
            MMShape.of("mm", 1024, 2048, 1024, layout="NT"),
            MMShape.of("addmm", 512, 3072, 768, dtype="float16", layout="NT"),
            MMShape.of("bmm", 128, 128, 64, B=96),
        )
        sample = ChoiceSample(_CHOICES_ON_GPU, SEED)
        return CollectionPlan(on_gpu, output, SweepSettings(sample=sample), budget_seconds=_COLLECTION_SECONDS)
    on_cpu = (
        MMShape.of("mm", 64, 256, 128, dtype="float32", layout="NT"),
        MMShape.of("addmm", 128, 384, 192, dtype="float32", layout="NT"),
        MMShape.of("bmm", 48, 48, 32, B=8, dtype="float32"),
    )
    return CollectionPlan(on_cpu, output, device="cpu", budget_seconds=_COLLECTION_SECONDS)


def train_and_judge() -> Iterator[Path]:
    """Trains on the committed measurements of an H200, and judges by problems that the training has not seen."""
    from diode.cli.evaluation_tables import efficiency_table, print_by_regime
    from diode.model.evaluation import evaluate, noise_floor, regrets
    from diode.model.truth import Truth
    from diode.model.wrapper import ModelWrapper
    from diode.storage.atomic import write_atomically

    question = _question(ROOT / "diode_datasets")
    model = ModelWrapper(_train(question.training, FOLDER / "model.safetensors"))
    rankers = _rankers(model, Truth.of(question.training))
    if question.exhaustive:
        rankers |= _committed(ROOT / "trained_models", question.asked)
    _say("3. ranking the choices of problems that it was not trained on, beside simpler ways to choose")
    out.print(_what_is_asked(question), markup=False)
    found = {name: evaluate(question.asked, regrets(question.asked, ranker)) for name, ranker in rankers.items()}
    out.print(efficiency_table(found))
    print_by_regime(out, found["model"])
    floor = sorted(noise_floor(question.asked))
    if floor:
        out.print(f"noise floor: timed again, the fastest is {floor[len(floor) // 2]:.2%} (p50) behind", markup=False)
    out.print(_shown(question.asked, rankers["model"]))
    evaluation = FOLDER / "evaluation.json"
    write_atomically(evaluation, _as_json(found, question))
    yield from (model.path, model.path.with_suffix(".json"), evaluation)
    yield _report(model, question, FOLDER / "report.html")


def _report(model: ModelWrapper, question: Question, path: Path) -> Path:
    from diode.model.truth import Truth
    from diode.report.charts import draw_charts
    from diode.report.findings import Inspection, gather
    from diode.report.page import render
    from diode.storage.atomic import write_atomically

    _say("4. drawing all of it on one page")
    training = Truth.of(question.training)
    found = gather(model.model, model.card, question.asked, Inspection(seed=SEED), training=training)
    write_atomically(path, render(found, draw_charts(found)))
    out.print(f"open {path} in a browser", markup=False)
    return path


def _question(folder: Path) -> Question:
    from diode.model.examples import split_by_twins
    from diode.model.truth import Truth
    from diode.storage import filter_dataset, read_dataset

    files = sorted(folder.glob("h200_train*.parquet"))
    if not files:
        raise UsageError(f"{folder}: no h200_train*.parquet is there; run the demo in a checkout of the project")
    started = time.monotonic()
    measured = Dataset.joined(read_dataset(file) for file in files)
    test_file = folder / "h200_test.parquet"
    exhaustive = test_file.exists()
    if exhaustive:
        asked = Truth.of(read_dataset(test_file))
    else:
        truth = Truth.of(measured)
        asked = truth.select(split_by_twins(truth, _FOLDS, SEED) == 0)
    unseen = {problem.problem.twin_group for problem in asked.problems}
    training = filter_dataset(
        measured, problem=lambda problem: isinstance(problem, MMShape) and problem.twin_group not in unseen
    )
    _say(
        f"2. training on measurements of an H200: {int(training.succeeded.sum())} times of "
        f"{len(training.problems)} problems, read in {duration(time.monotonic() - started)}"
    )
    return Question(training, asked, exhaustive)


def _train(training: Dataset, path: Path) -> Path:
    from diode.cli.training_display import TrainingDisplay
    from diode.model.fitting import FitSettings, fit, save_model
    from diode.model.training import TrainingSettings

    started = time.monotonic()
    epochs = min(max(_PROBLEM_VISITS // max(len(training.problems), 1), 6), 30)
    settings = FitSettings(network=TrainingSettings(hidden=64, members=1, epochs=epochs, seed=SEED), name="diode-demo")
    with TrainingDisplay(err) as display:
        fitted = fit(training, settings, report=display)
    card = save_model(fitted, path)
    out.print(f"{card}, trained in {duration(time.monotonic() - started)}", markup=False)
    return path


def _rankers(model: ModelWrapper, training: Truth) -> dict[str, Ranker]:
    from diode.model.rankers import library_ranker, model_ranker, random_ranker, static_table_ranker

    return {
        "model": model_ranker(model.model),
        "static table": static_table_ranker(training),
        "library alone": library_ranker,
        "random": random_ranker(SEED),
    }


def _committed(folder: Path, asked: Truth) -> dict[str, Ranker]:
    """The committed model for this hardware, if there is one; of held-out problems it may have seen the answers."""
    from diode.model.card import card_path
    from diode.model.rankers import model_ranker
    from diode.model.registry import ModelRegistry

    registry = ModelRegistry()
    for weights in sorted(folder.rglob("*.safetensors")):
        if card_path(weights).exists():
            registry.add(weights)
    match = registry.find(hardware=asked.problems[0].hardware)
    if match is None or not match.same_hardware:
        return {}
    return {f"committed {match.pointer.card.name} {match.pointer.version}": model_ranker(match.pointer.load().model)}


def _what_is_asked(question: Question) -> str:
    count = len(question.asked)
    if question.exhaustive:
        return f"{count} test problems, every legal choice of each measured; 100% is the fastest of all"
    choices = sorted(len(measured.choice_ids) for measured in question.asked.problems)[count // 2]
    return (
        f"{count} problems held out of the training data with all their twins, each with a sample of choices measured "
        f"(the middle one {choices}); 100% is the fastest of that sample, not of every choice there is"
    )


def _shown(truth: Truth, ranker: Ranker) -> Table:
    """Problems from the shortest to the longest, and what the model makes of them when nothing is benchmarked."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("problem", "kernel that the model chooses"):
        table.add_column(name)
    for name in ("its time", "fastest measured", "ATen's"):
        table.add_column(name, justify="right")
    ordered = sorted(truth.problems, key=lambda measured: measured.oracle_us)
    for number in range(_SHOWN):
        measured = ordered[(2 * number + 1) * len(ordered) // (2 * _SHOWN)]
        place = int(ranker(truth, measured)[0])
        times = (measured.time_us[place], measured.oracle_us, _library_us(truth, measured))
        choice = truth.choices[measured.choice_ids[place]]
        table.add_row(str(measured.problem), str(choice), *(_time(float(time_us)) for time_us in times))
    return table


def _library_us(truth: Truth, measured: MeasuredProblem) -> float:
    from diode.model.rankers import library_ranker

    times = measured.time_us[library_ranker(truth, measured)]
    return min((float(time_us) for time_us in times if time_us == time_us), default=float("nan"))


def _time(time_us: float) -> str:
    return microseconds(time_us) if time_us == time_us else "fails"


def _as_json(found: dict[str, Evaluation], question: Question) -> bytes:
    document = {"problems": len(question.asked), "exhaustive": question.exhaustive, "rankings": found}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _say(text: str) -> None:
    out.print(f"\n==> {text}", markup=False)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
