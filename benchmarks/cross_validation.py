"""How well do models rank problems that they did not learn from? k-fold over training data, twins kept together.

This is the tool by which features, losses and models are chosen: the test set has no say in that. A variant of a
network changes its settings, as in `--variant "no order:order=0"`; `without=a+b` takes features from it, `problems=0.5`
and `choices=0.5` thin what it is trained on, and `stop=inner` lets it stop by problems of another K.

Training problems come in families that share K. `--split inner` keeps all problems of one K together, which is harder
than `--split twins`: a judged problem then has no relative in training. Each model is also judged without the library's
kernels, which win most large problems where only a sample of the others was measured.

The output holds a list of runs: a run is added to those that a file has.
Usage: python benchmarks/cross_validation.py --output benchmarks/results/cross_validation_h200.json
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from baselines.public_architecture import train_public_architecture
from diode.features import COLUMNS, feature_matrix
from diode.model.evaluation import Evaluation, Order, Ranker, Regrets, evaluate, regrets_of
from diode.model.examples import Examples, split_by_twins
from diode.model.gbdt import TreeSettings, train_trees
from diode.model.inference import ArrayNetwork
from diode.model.losses import LossWeights
from diode.model.rankers import library_ranker, model_ranker, random_ranker, static_table_ranker
from diode.model.training import TrainingSettings, train_on_examples
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import NetworkModel
from diode.storage import read_dataset
from diode.types import AtenChoice, Dataset
from provenance import provenance

Trainer = Callable[[Truth], Ranker]
Split = Callable[[Truth, int, int], NDArray[np.intp]]
SHOWN: Final = (1, 3, 8)


def training_files() -> list[Path]:
    return sorted(Path("diode_datasets").glob("*train*.parquet"))


def read_together(paths: Iterable[Path]) -> Dataset:
    return Dataset.joined(read_dataset(path) for path in paths)


def split_by_inner(truth: Truth, folds: int, seed: int) -> NDArray[np.intp]:
    """A fold for each problem; all of one K share one, and so do twins."""
    distinct = sorted({measured.problem.K for measured in truth.problems})
    random.Random(seed).shuffle(distinct)
    fold_of = {inner: number % folds for number, inner in enumerate(distinct)}
    return np.array([fold_of[measured.problem.K] for measured in truth.problems], dtype=np.intp)


SPLITS: Final[dict[str, Split]] = {"twins": split_by_twins, "inner": split_by_inner}


@dataclass(frozen=True)
class Variant:
    """A network with its settings, the features that it does without, and the share of the data that it sees."""

    settings: TrainingSettings
    without: tuple[str, ...] = ()
    problems: float = 1.0
    choices: float = 1.0
    stop: str = "twins"
    """How the problems are split that each member leaves out to stop by."""

    def train(self, truth: Truth) -> Ranker:
        hidden = np.array([name in self.without for name in COLUMNS])
        truth = thinned(truth, self.problems, self.choices, self.settings.seed)
        examples = Examples.of(truth)
        examples = replace(examples, features=_without(examples.features, hidden))
        folds = SPLITS[self.stop](truth, self.settings.folds, self.settings.seed)
        network = train_on_examples(examples, folds, self.settings).network
        parameters = {name: value.numpy() for name, value in network.state_dict().items()}
        model = NetworkModel(ArrayNetwork(network.spec, parameters), None, 1.0)

        def rank(truth: Truth, measured: MeasuredProblem) -> Order:
            table = truth.table.take(measured.choice_ids)
            features = feature_matrix(measured.hardware, measured.problem, table)
            return model.predict(_without(features, hidden)).order()

        return rank


def _without(features: NDArray[np.float32], hidden: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(hidden, np.float32(0), features) if hidden.any() else features


def thinned(truth: Truth, problems: float, choices: float, seed: int) -> Truth:
    """A share of the problems, and of each of them a share of its choices; a smaller share is part of a larger."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(truth))
    kept = truth.select(np.sort(order[: max(1, round(problems * len(truth)))]))
    if choices == 1.0:
        return kept
    return Truth(kept.choices, tuple(_fewer_choices(measured, choices, draw) for measured in kept.problems))


def _fewer_choices(measured: MeasuredProblem, share: float, draw: np.random.Generator) -> MeasuredProblem:
    """With one that works, or nothing could be said of the problem."""
    lot = draw.permutation(len(measured.choice_ids))
    count = max(2, round(share * len(lot)))
    while measured.failed[lot[:count]].all():
        count += 1
    return _with_choices(measured, np.sort(lot[:count]))


def _with_choices(measured: MeasuredProblem, places: NDArray[np.intp]) -> MeasuredProblem:
    columns = ("choice_ids", "time_us", "first_us", "second_us")
    return replace(measured, **{name: getattr(measured, name)[places] for name in columns})


def without_library(truth: Truth, orders: Sequence[Order]) -> tuple[Truth, list[Order]]:
    """The same orders of all other choices; problems of which nothing else works are left out."""
    library = np.array([isinstance(choice, AtenChoice) for choice in truth.choices])
    problems, others = [], []
    for measured, order in zip(truth.problems, orders, strict=True):
        places = np.flatnonzero(~library[measured.choice_ids])
        if measured.failed[places].all():
            continue
        renumbered = np.full(len(measured.choice_ids), -1)
        renumbered[places] = np.arange(len(places))
        problems.append(_with_choices(measured, places))
        others.append(renumbered[order][renumbered[order] >= 0])
    return Truth(truth.choices, tuple(problems)), others


def variant_of(usual: TrainingSettings, text: str) -> tuple[str, Variant]:
    """`name:setting=value,setting=value`, of `TrainingSettings`, `LossWeights`, or `Variant`."""
    name, _, given = text.partition(":")
    losses = {field.name for field in fields(LossWeights)}
    loss: dict[str, float] = {}
    settings: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for pair in filter(None, given.split(",")):
        key, _, value = pair.partition("=")
        if key == "without":
            own[key] = tuple(column for part in value.split("+") for column in _columns(part))
        elif key in ("problems", "choices"):
            own[key] = float(value)
        elif key == "stop":
            own[key] = value
        elif key in losses:
            loss[key] = float(value)
        else:
            settings[key] = type(getattr(usual, key))(value)
    return name, Variant(replace(usual, loss=replace(usual.loss, **loss), **settings), **own)


def _columns(pattern: str) -> list[str]:
    """`log_k`, or `*_us` for all that end so."""
    found = fnmatch.filter(COLUMNS, pattern)
    if not found:
        raise SystemExit(f"without={pattern}: there is no such feature; there are {', '.join(COLUMNS)}")
    return found


def trees(truth: Truth) -> Ranker:
    return model_ranker(train_trees(truth, TreeSettings())[0])


def trainers(usual: TrainingSettings, seed: int) -> dict[str, Trainer]:
    return {
        "deep": Variant(usual).train,
        "base": Variant(replace(usual, type="base", layers=4)).train,
        "gbdt": trees,
        "public architecture": lambda truth: train_public_architecture(truth, seed=seed),
        "static table": static_table_ranker,
        "library": lambda truth: library_ranker,
        "random": lambda truth: random_ranker(seed),
    }


@dataclass(frozen=True, eq=False)
class Judged:
    """What one way to rank made of all problems of the judged folds together."""

    truth: Truth
    found: Regrets
    orders: list[Order]
    training_seconds: float
    """Of one training, on average."""

    @property
    def evaluation(self) -> Evaluation:
        return evaluate(self.truth, self.found)

    @property
    def evaluation_without_library(self) -> Evaluation:
        truth, orders = without_library(self.truth, self.orders)
        return evaluate(truth, regrets_of(truth, orders))


def cross_validate(truth: Truth, folds: NDArray[np.intp], judged: int, train: Trainer) -> Judged:
    orders: dict[int, Order] = {}
    seconds = []
    for fold in range(judged):
        started = time.monotonic()
        ranker = train(truth.select(folds != fold))
        seconds.append(time.monotonic() - started)
        for number in np.flatnonzero(folds == fold):
            orders[int(number)] = ranker(truth, truth.problems[number])
    there = sorted(orders)
    judged_truth, in_turn = truth.select(np.array(there)), [orders[number] for number in there]
    return Judged(judged_truth, regrets_of(judged_truth, in_turn), in_turn, float(np.mean(seconds)))


def gain(judged: Judged, reference: Judged, k: int) -> tuple[float, float]:
    """How much speed is gained over the reference, in percent: the mean over problems, and its standard error.

    Problems of one K go wrong together, so the error is taken over these groups.
    """
    gained = 100.0 * np.log(reference.found.at(k) / judged.found.at(k))
    _, group = np.unique([measured.problem.K for measured in judged.truth.problems], return_inverse=True)
    deviations = np.bincount(group, gained - gained.mean())
    return round(float(gained.mean()), 3), round(float(np.sqrt((deviations**2).sum()) / len(gained)), 3)


def summary(judged: Judged, reference: Judged | None) -> dict[str, Any]:
    found = judged.evaluation
    others = judged.evaluation_without_library
    result: dict[str, Any] = {
        "efficiency": {str(entry.k): round(entry.efficiency, 3) for entry in found.overall},
        "regret_p95": {str(entry.k): round(entry.regret_p95, 4) for entry in found.overall},
        "by_regime": {
            regime: {
                "problems": entries[0].problems,
                "efficiency": {str(e.k): round(e.efficiency, 3) for e in entries if e.k in SHOWN},
                "regret_p95": {str(e.k): round(e.regret_p95, 4) for e in entries if e.k in SHOWN},
            }
            for regime, entries in found.by_regime.items()
        },
        "without_library": {
            "efficiency": {str(e.k): round(e.efficiency, 3) for e in others.overall if e.k in SHOWN},
            "regret_p95": {str(e.k): round(e.regret_p95, 4) for e in others.overall if e.k in SHOWN},
        },
        "training_seconds": round(judged.training_seconds, 1),
    }
    if reference is not None:
        result["gain"] = {str(k): gain(judged, reference, k) for k in SHOWN}
    return result


def show(name: str, judged: Judged, reference: Judged | None) -> None:
    found, others = judged.evaluation, judged.evaluation_without_library
    efficiency = "  ".join(f"@{k} {found.at(k).efficiency:6.2f}%" for k in SHOWN)
    p95 = "  ".join(f"@{k} {found.at(k).regret_p95:6.2%}" for k in SHOWN)
    alone = "  ".join(f"@{k} {others.at(k).efficiency:6.2f}%" for k in SHOWN)
    line = f"{name:24} {efficiency}   p95 {p95}   no library {alone}   {judged.training_seconds:6.1f} s"
    if reference is not None:
        line += "   gain " + "  ".join("@{} {:+.2f} ({:.2f})".format(k, *gain(judged, reference, k)) for k in SHOWN)
    print(line, flush=True)


def earlier_runs(output: Path | None) -> list[dict[str, Any]]:
    if output is None or not output.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(output.read_text())["runs"]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, nargs="+", default=training_files())
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--judged", type=int, help="judge by so many of the folds only")
    parser.add_argument("--split", choices=list(SPLITS), default="inner", help="what is kept together in a fold")
    parser.add_argument("--seed", type=int, default=7, help="of the folds")
    parser.add_argument("--models", default="deep,base,gbdt,public architecture,static table,library,random")
    parser.add_argument("--variant", action="append", default=[], help="name:setting=value,...")
    parser.add_argument("--usual", default="", help="settings of every network, as in epochs=20,members=1")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    truth = Truth.of(read_together(arguments.dataset))
    _, usual = variant_of(TrainingSettings(), f"usual:{arguments.usual}")
    known = trainers(usual.settings, arguments.seed)
    wanted = {name: known[name] for name in arguments.models.split(",") if name}
    wanted |= {name: variant.train for name, variant in (variant_of(usual.settings, v) for v in arguments.variant)}
    folds = SPLITS[arguments.split](truth, arguments.folds, arguments.seed)
    judged = arguments.judged or arguments.folds
    choices = [len(measured.choice_ids) for measured in truth.problems]
    print(f"{len(truth)} problems, {sum(choices)} choices; {judged} of {arguments.folds} folds judged", flush=True)
    run: dict[str, Any] = {
        **provenance(truth.problems[0].hardware),
        "dataset": [str(path) for path in arguments.dataset],
        "problems": len(truth),
        "problems_judged": int((folds < judged).sum()),
        "measurements": int(sum((~measured.failed).sum() for measured in truth.problems)),
        "choices_per_problem": float(np.median(choices)),
        "split": arguments.split,
        "folds": arguments.folds,
        "judged": judged,
        "usual": msgspec.to_builtins(usual.settings),
        "variants": arguments.variant,
        "reference": next(iter(wanted), None),
        "models": {},
    }
    runs = earlier_runs(arguments.output)
    reference = None
    for name, train in wanted.items():
        found = cross_validate(truth, folds, judged, train)
        run["models"][name] = summary(found, reference)
        show(name, found, reference)
        reference = reference or found
        if arguments.output:
            arguments.output.write_text(json.dumps({"runs": [*runs, run]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
