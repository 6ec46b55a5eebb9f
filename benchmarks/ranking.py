"""How good are a model's first choices beside an exhaustive search, and beside what it has to beat?

Ranks all choices of every test problem by the committed model and by each baseline, all on the same measurements, in
the words of docs/evaluation.md. Baselines that learn, learn from the training data, never from the test data. A test
problem with a twin in the training data is an error. nvMatmulHeuristics is left out, and said to be, where it is not
installed: pip install 'torch-diode-lib[baselines]'.
Usage: python benchmarks/ranking.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from baselines.inductor_default import inductor_default_ranker
from baselines.nv_matmul_heuristics import after_library, nv_matmul_heuristics_ranker
from baselines.public_architecture import train_public_architecture
from cross_validation import read_together, training_files
from diode.errors import MissingDependencyError
from diode.model import ModelRegistry, ModelWrapper
from diode.model.evaluation import (
    AtK,
    Order,
    Ranker,
    Regrets,
    evaluate,
    noise_floor,
    regime_of,
    regrets,
    regrets_of,
)
from diode.model.gbdt import TreeSettings, train_trees
from diode.model.rankers import library_ranker, model_ranker, random_ranker, static_table_ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.model.validation import orders_in_batches
from diode.storage import read_dataset
from diode.storage.filtering import kind_of
from diode.types import AtenChoice, Environment
from provenance import provenance

DATA: Final = Path("diode_datasets/h200_test.parquet")
MODELS: Final = Path("trained_models")
OUTPUT: Final = Path("benchmarks/results/ranking_h200.json")
SHOWN: Final = (1, 3, 8)
RANDOM_DRAWS: Final = 32
LEAST_NOISE: Final = 0.01
WORST_SHOWN: Final = 15
BATCH: Final = 4


@dataclass(frozen=True)
class Ranked:
    """One ranker's regrets on the test problems; `draws` tells how often it ranked each of them."""

    found: Regrets
    draws: int = 1


def first_round_ranker(truth: Truth, measured: MeasuredProblem) -> Order:
    """By the first round's times: what an exhaustive search gets that times everything once."""
    return np.argsort(measured.first_us, kind="stable")


def oracle_ranker(truth: Truth, measured: MeasuredProblem) -> Order:
    return np.argsort(measured.time_us, kind="stable")


def trained_baselines(training: Truth, seed: int) -> dict[str, Callable[[], Ranker]]:
    return {
        "gbdt": lambda: model_ranker(train_trees(training, TreeSettings(seed=seed))[0]),
        "public architecture": lambda: train_public_architecture(training, seed=seed),
        "static table": lambda: static_table_ranker(training),
    }


def fixed_baselines() -> dict[str, Callable[[], Ranker]]:
    return {
        "Inductor DEFAULT": inductor_default_ranker,
        "nvMatmulHeuristics": nv_matmul_heuristics_ranker,
        "library, then nvMatmulHeuristics": lambda: after_library(nv_matmul_heuristics_ranker()),
        "library": lambda: library_ranker,
        "first round": lambda: first_round_ranker,
        "oracle": lambda: oracle_ranker,
    }


def rank_baselines(
    truth: Truth, makers: Mapping[str, Callable[[], Ranker]]
) -> tuple[dict[str, Ranked], dict[str, str]]:
    """The regrets of each baseline, and why those that are missing are."""
    ranked: dict[str, Ranked] = {}
    left_out: dict[str, str] = {}
    for name, make in makers.items():
        found = regrets_or_reason(truth, make)
        if isinstance(found, str):
            left_out[name] = found
        else:
            ranked[name] = Ranked(found)
    return ranked, left_out


def regrets_or_reason(truth: Truth, make: Callable[[], Ranker]) -> Regrets | str:
    try:
        return regrets(truth, make())
    except MissingDependencyError as error:
        return str(error)


def rank_by_chance(truth: Truth, seed: int) -> Ranked:
    """Many draws for each problem: of one, chance would be a large part."""
    return Ranked(regrets(repeated(truth, RANDOM_DRAWS), random_ranker(seed)), RANDOM_DRAWS)


def repeated(truth: Truth, times: int) -> Truth:
    return truth.select(np.tile(np.arange(len(truth)), times))


def figures(entries: Sequence[AtK]) -> dict[str, dict[str, float]]:
    columns = ("efficiency", "regret_p50", "regret_p95", "regret_worst", "winner_kept")
    return {name: {str(entry.k): round(getattr(entry, name), 5) for entry in entries} for name in columns}


def judged(truth: Truth, ranked: Ranked, noise: float) -> dict[str, Any]:
    """Figures over all problems, and by regime and op."""
    found = evaluate(repeated(truth, ranked.draws), ranked.found, noise)
    return {
        **figures(found.overall),
        "by_regime": {name: figures(entries) for name, entries in found.by_regime.items()},
        "by_op": {name: figures(entries) for name, entries in found.by_op.items()},
    }


def floor_of(truth: Truth) -> dict[str, float | int] | None:
    """The noise floor; None where nothing was timed twice."""
    floor = noise_floor(truth)
    if not len(floor):
        return None
    p50, p95 = np.percentile(floor, (50, 95))
    return {
        "p50": round(float(p50), 5),
        "p95": round(float(p95), 5),
        "worst": round(float(floor.max()), 5),
        "efficiency": round(100.0 / float(np.exp(np.log1p(floor).mean())), 4),
        "problems": len(floor),
    }


def rows_by(labels: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    array = np.array(labels)
    return {name: np.flatnonzero(array == name) for name in dict.fromkeys(sorted(labels))}


def by_regime(truth: Truth, figures_by_regime: dict[str, Any]) -> dict[str, Any]:
    rows = rows_by([regime_of(measured.problem, measured.oracle_us) for measured in truth.problems])
    return {
        name: {"problems": len(rows[name]), "noise_floor": floor_of(truth.select(rows[name])), **found}
        for name, found in figures_by_regime.items()
    }


def by_oracle(truth: Truth, ranked: Ranked, noise: float) -> dict[str, Any]:
    """By the kind of choice that is fastest: whose strength a ranker overlooks."""
    winners = [kind_of(truth.choices[m.choice_ids[np.nanargmin(m.time_us)]]) for m in truth.problems]
    found = {}
    for name, rows in rows_by(winners).items():
        part = Regrets(ranked.found.first_choices, ranked.found.ratios[rows])
        found[name] = {"problems": len(rows), **figures(evaluate(truth.select(rows), part, noise).overall)}
    return found


def choices_to_beat(model: dict[str, Any], baseline: dict[str, Any], with_choices: int = 8) -> int | None:
    """How few of the model's first choices are better than so many of the baseline's."""
    goal = baseline["efficiency"][str(with_choices)]
    return next((int(k) for k, value in model["efficiency"].items() if value > goal), None)


def worst_problems(truth: Truth, ranker: Ranker) -> list[dict[str, Any]]:
    """Where the first choice loses most, with what it lost to."""
    rows = []
    for measured in truth.problems:
        choices = truth.choices_of(measured)
        order = ranker(truth, measured)
        winner = int(np.nanargmin(measured.time_us))
        library = [t for c, t in zip(choices, measured.time_us, strict=True) if isinstance(c, AtenChoice)]
        chosen_us = float(measured.time_us[order[0]])
        rows.append(
            {
                "problem": str(measured.problem),
                "regime": regime_of(measured.problem, measured.oracle_us),
                "chosen": str(choices[order[0]]),
                "chosen_us": None if np.isnan(chosen_us) else round(chosen_us, 3),
                "oracle": str(choices[winner]),
                "oracle_us": round(measured.oracle_us, 3),
                "library_us": round(float(np.nanmin(library)), 3) if np.isfinite(library).any() else None,
                "oracle_place": int(np.flatnonzero(order == winner)[0]) + 1 if winner in order else None,
            }
        )
    slow = {id(row): row["chosen_us"] / row["oracle_us"] if row["chosen_us"] else np.inf for row in rows}
    return sorted(rows, key=lambda row: slow[id(row)], reverse=True)[:WORST_SHOWN]


def check_apart(test: Truth, training: Truth) -> None:
    known = {measured.problem.twin_group for measured in training.problems}
    shared = [str(measured.problem) for measured in test.problems if measured.problem.twin_group in known]
    if shared:
        raise SystemExit(f"{len(shared)} test problems have a twin in the training data, such as {shared[0]}")


def model_for(path: Path, truth: Truth) -> ModelWrapper:
    """The model at a path, or the one in a folder (and those in it) that fits the measured GPU best."""
    registry = ModelRegistry()
    folders = sorted(folder for folder in path.rglob("*") if folder.is_dir())
    for place in (path, *folders):
        registry.add(place)
    match = registry.find(hardware=truth.problems[0].hardware)
    if match is None:
        raise SystemExit("\n".join([f"no model in {path}", *registry.problems.values()]))
    print(match.why)
    return match.pointer.load()


def file_facts(path: Path) -> dict[str, Any]:
    return {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def measured_with(environments: Sequence[Environment]) -> list[dict[str, str]]:
    facts = [
        {
            "gpu": row.hardware.name,
            "driver": row.driver,
            "torch": row.torch,
            "triton": row.triton,
            "commit": row.commit,
            "command": row.command,
        }
        for row in environments
    ]
    return [row for number, row in enumerate(facts) if row not in facts[:number]]


def show(name: str, found: dict[str, Any]) -> None:
    efficiency = "  ".join(f"@{k} {found['efficiency'][str(k)]:6.2f}%" for k in SHOWN)
    p95 = "  ".join(f"@{k} {found['regret_p95'][str(k)]:7.2%}" for k in SHOWN)
    print(f"{name:34} efficiency {efficiency}   regret p95 {p95}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the exhaustive truth")
    parser.add_argument("--training", type=Path, nargs="+", default=training_files(), help="what baselines learn from")
    parser.add_argument("--model", type=Path, default=MODELS, help="a trained model, or a folder of them")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args(arguments)
    # How sums are shared out among threads changes their last digits, and with them what is learned.
    torch.set_num_threads(1)
    dataset = read_dataset(given.data)
    truth = Truth.of(dataset)
    training = Truth.of(read_together(given.training))
    check_apart(truth, training)
    wrapper = model_for(given.model, truth)
    floor = floor_of(truth)
    noise = max(LEAST_NOISE, 0.0 if floor is None else floor["p50"])
    ranker = model_ranker(wrapper.model)

    model_ranked = Ranked(regrets(truth, ranker))
    of_model = judged(truth, model_ranked, noise)
    show("model", of_model)
    in_full = judged(truth, Ranked(regrets_of(truth, orders_in_batches(wrapper.model, truth, BATCH))), noise)
    show("model without its screen", in_full)
    ranked, left_out = rank_baselines(truth, {**trained_baselines(training, given.seed), **fixed_baselines()})
    baselines = {name: judged(truth, entry, noise) for name, entry in ranked.items()}
    baselines["random"] = judged(truth, rank_by_chance(truth, given.seed), noise)
    for name, found in baselines.items():
        show(name, found)
    for name, reason in left_out.items():
        print(f"{name} is left out: {reason}")

    choices = [len(measured.choice_ids) for measured in truth.problems]
    result: dict[str, Any] = {
        **provenance(truth.problems[0].hardware),
        "data": file_facts(given.data) | {"measured_with": measured_with(dataset.environments)},
        "training": [file_facts(path) for path in given.training],
        "model": {"name": str(wrapper.card), "type": wrapper.card.type, "sha256": wrapper.digest},
        "seed": given.seed,
        "test_problems": len(truth),
        "choices": sum(choices),
        "choices_per_problem": float(np.median(choices)),
        "noise_floor": floor,
        "winner_within": noise,
        **{name: value for name, value in of_model.items() if name not in ("by_regime", "by_op")},
        "by_regime": by_regime(truth, of_model["by_regime"]),
        "by_op": of_model["by_op"],
        "by_oracle": by_oracle(truth, model_ranked, noise),
        "without_screen": in_full,
        "baselines": baselines,
        "baselines_left_out": left_out,
        "choices_to_beat_8_of": {name: choices_to_beat(of_model, found) for name, found in baselines.items()},
        "worst": worst_problems(truth, ranker),
    }
    given.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(truth)} problems, {sum(choices)} choices, noise floor {floor}; written to {given.output}")


if __name__ == "__main__":
    main()
