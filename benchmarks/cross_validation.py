"""How well do models rank problems that they did not learn from? k-fold over training data, twins kept together.

This is the tool by which features, losses and models are chosen: the test set has no say in that. A variant of a
network changes its settings, as in `--variant "no order:order=0"`; `without=a+b` takes features from it.
Usage: python benchmarks/cross_validation.py --output benchmarks/results/cross_validation.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.public_architecture import train_public_architecture
from diode.features import COLUMNS, feature_matrix
from diode.model.evaluation import Evaluation, Order, Ranker, evaluate, regrets_of
from diode.model.examples import Examples, split_by_twins
from diode.model.gbdt import TreeSettings, train_trees
from diode.model.inference import ArrayNetwork
from diode.model.losses import LossWeights
from diode.model.rankers import library_ranker, model_ranker, random_ranker, static_table_ranker
from diode.model.training import TrainingSettings, train_on_examples
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import NetworkModel
from diode.storage import read_datasets
from provenance import provenance

Trainer = Callable[[Truth], Ranker]
SHOWN = (1, 3, 8)


@dataclass(frozen=True)
class Variant:
    """A network with its settings, and the features that it does without."""

    settings: TrainingSettings
    without: tuple[str, ...] = ()

    def train(self, truth: Truth) -> Ranker:
        hidden = np.array([name in self.without for name in COLUMNS])
        examples = Examples.of(truth)
        examples = replace(examples, features=_without(examples.features, hidden))
        folds = split_by_twins(truth, self.settings.folds, self.settings.seed)
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


def variant_of(usual: TrainingSettings, text: str) -> tuple[str, Variant]:
    """`name:setting=value,setting=value`, of `TrainingSettings`, `LossWeights`, or `without`."""
    name, _, given = text.partition(":")
    losses = {field.name for field in fields(LossWeights)}
    loss, settings, without = {}, {}, ()
    for pair in filter(None, given.split(",")):
        key, _, value = pair.partition("=")
        if key == "without":
            without = tuple(column for column in COLUMNS if any(_names(part, column) for part in value.split("+")))
        elif key in losses:
            loss[key] = float(value)
        else:
            settings[key] = type(getattr(usual, key))(value)
    return name, Variant(replace(usual, loss=replace(usual.loss, **loss), **settings), without)


def _names(part: str, column: str) -> bool:
    return column == part or (part.endswith("*") and column.startswith(part[:-1]))


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


def cross_validate(truth: Truth, folds: NDArray[np.intp], judged: int, train: Trainer) -> tuple[Evaluation, float]:
    """The evaluation over all problems of the judged folds together, and the seconds of one training."""
    orders: dict[int, Order] = {}
    seconds = []
    for fold in range(judged):
        started = time.monotonic()
        ranker = train(truth.select(folds != fold))
        seconds.append(time.monotonic() - started)
        for number in np.flatnonzero(folds == fold):
            orders[int(number)] = ranker(truth, truth.problems[number])
    there = sorted(orders)
    judged_truth = truth.select(np.array(there))
    return evaluate(judged_truth, regrets_of(judged_truth, (orders[number] for number in there))), float(
        np.mean(seconds)
    )


def summary(found: Evaluation, seconds: float) -> dict[str, Any]:
    return {
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
        "training_seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=Path, default=Path("diode_datasets/h200_train_1.parquet"))
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--judged", type=int, help="judge by so many of the folds only")
    parser.add_argument("--seed", type=int, default=7, help="of the folds")
    parser.add_argument("--models", default="deep,base,gbdt,public architecture,static table,library,random")
    parser.add_argument("--variant", action="append", default=[], help="name:setting=value,...")
    parser.add_argument("--usual", default="", help="settings of every network, as in epochs=20,members=1")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    truth = Truth.of(read_datasets(arguments.dataset))
    _, usual = variant_of(TrainingSettings(), f"usual:{arguments.usual}")
    known = trainers(usual.settings, arguments.seed)
    wanted = {name: known[name] for name in arguments.models.split(",") if name}
    wanted |= {name: variant.train for name, variant in (variant_of(usual.settings, v) for v in arguments.variant)}
    folds = split_by_twins(truth, arguments.folds, arguments.seed)
    judged = arguments.judged or arguments.folds
    choices = [len(measured.choice_ids) for measured in truth.problems]
    print(f"{len(truth)} problems, {sum(choices)} choices; {judged} of {arguments.folds} folds judged", flush=True)
    found = {}
    for name, train in wanted.items():
        evaluation, seconds = cross_validate(truth, folds, judged, train)
        found[name] = summary(evaluation, seconds)
        efficiency = "  ".join(f"@{k} {evaluation.at(k).efficiency:6.2f}%" for k in SHOWN)
        p95 = "  ".join(f"@{k} {evaluation.at(k).regret_p95:6.2%}" for k in SHOWN)
        print(f"{name:24} {efficiency}   p95 {p95}   {seconds:6.1f} s", flush=True)
    if arguments.output:
        result = {
            **provenance(truth.problems[0].hardware),
            "dataset": str(arguments.dataset),
            "problems": len(truth),
            "choices_per_problem": float(np.median(choices)),
            "folds": arguments.folds,
            "judged": judged,
            "usual": arguments.usual,
            "variants": arguments.variant,
            "models": found,
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
