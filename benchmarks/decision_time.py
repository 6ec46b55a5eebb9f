"""How long does a model take to choose among all of Inductor's kernels for a GEMM? One CPU thread, nothing remembered.

Timed is the work of one decision, warm: looking up the table of candidates, computing features, inference, ranking. The
problems are drawn; the candidates are those of the EXHAUSTIVE space, which Inductor itself lists for a described H200.
What the screen costs is told in the model's own terms: how much slower, by the prediction of the large network, the
first choice gets when the screen has left some out.
Usage: python benchmarks/decision_time.py --model MODEL --output benchmarks/results/decision_time.json
"""

from __future__ import annotations

import os

# Before numpy is loaded: its threads are counted once.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diode.collection.samplers import LogNormalSampler
from diode.features import ChoiceTable, feature_matrix
from diode.integration.device import current_hardware
from diode.integration.lowering import lowered
from diode.model import ModelCard, ModelWrapper
from diode.types import MMShape
from diode.types.known_hardware import H200
from provenance import provenance

FEWEST_CHOICES, FEWEST_PROBLEMS = 2200, 200
LARGE = 4096
"""A problem of this size has every config of the EXHAUSTIVE space: small sizes have fewer."""

Kind = tuple[str, str, str, bool]


def kind_of(problem: MMShape) -> Kind:
    return (problem.op, problem.a.dtype, problem.layout, problem.allow_tf32)


def candidates(problem: MMShape) -> ChoiceTable:
    """All choices for problems of this one's kind."""
    large = MMShape.of(
        problem.op,
        LARGE,
        LARGE,
        LARGE,
        B=2 if problem.op == "bmm" else 1,
        dtype=problem.a.dtype,
        layout="NT" if problem.layout not in ("NN", "NT", "TN", "TT") else problem.layout,  # type: ignore[arg-type]
        allow_tf32=problem.allow_tf32,
    )
    with lowered(large, "EXHAUSTIVE", H200) as found:
        return ChoiceTable.of([candidate.choice for candidate in found])


def problems_with_tables(card: ModelCard, count: int, seed: int) -> tuple[list[MMShape], dict[Kind, ChoiceTable]]:
    """Distinct problems that the model knows and whose kind has choices enough, and the tables by kind."""
    tables: dict[Kind, ChoiceTable] = {}
    problems: list[MMShape] = []
    for problem in dict.fromkeys(LogNormalSampler(seed).sample(20 * count)):
        kind = kind_of(problem)
        if problem.op not in card.ops or ("tf32" if problem.allow_tf32 else problem.a.dtype) not in card.precisions:
            continue
        if kind not in tables:
            tables[kind] = candidates(problem)
        if len(tables[kind]) >= FEWEST_CHOICES:
            problems.append(problem)
        if len(problems) == count:
            return problems, tables
    raise SystemExit(f"only {len(problems)} of {count} problems that the model knows have {FEWEST_CHOICES} choices")


def decide(model: ModelWrapper, problem: MMShape, tables: dict[Kind, ChoiceTable]) -> list[float]:
    """Seconds for features, for inference, for ranking; the first includes the look-up."""
    stamps = [time.perf_counter()]
    features = feature_matrix(H200, problem, tables[kind_of(problem)])
    stamps.append(time.perf_counter())
    prediction = model.model.predict_choices(features)
    stamps.append(time.perf_counter())
    prediction.order()
    stamps.append(time.perf_counter())
    return np.diff(stamps).tolist()


def screen_cost(
    model: ModelWrapper, problems: Sequence[MMShape], tables: dict[Kind, ChoiceTable]
) -> tuple[float, float]:
    """Share of the problems whose first choice survives the screen, and the mean that is lost by it."""
    kept, lost = [], []
    for problem in problems:
        features = feature_matrix(H200, problem, tables[kind_of(problem)])
        full = model.model.predict(features)
        first, screened = full.order()[0], model.model.predict_choices(features).order()[0]
        kept.append(first == screened)
        lost.append(np.exp(full.log_ratio[screened] - full.log_ratio[first]) - 1)
    return float(np.mean(kept)), float(np.mean(lost))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3, help="each problem is decided so often")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.problems < FEWEST_PROBLEMS:
        raise SystemExit(f"--problems {arguments.problems}: at least {FEWEST_PROBLEMS} are needed")
    model = ModelWrapper(arguments.model)
    problems, tables = problems_with_tables(model.card, arguments.problems, arguments.seed)
    for problem in problems[:20]:
        decide(model, problem, tables)
    # A round goes through all problems, so that nothing of a problem's last decision is still in a cache.
    rounds = np.array([[decide(model, p, tables) for p in problems] for _ in range(arguments.rounds)]) * 1e3
    whole = rounds.sum(axis=2)
    by_stage = np.median(rounds, axis=(0, 1))
    choices = [len(tables[kind_of(problem)]) for problem in problems]
    kept, lost = screen_cost(model, problems, tables)
    result: dict[str, Any] = {
        **provenance(current_hardware("cpu")),
        "model": str(model.card),
        "model_sha256": model.digest,
        "threads": 1,
        "problems": len(problems),
        "choices": min(choices),
        "choices_most": max(choices),
        "median_ms": round(float(np.median(whole)), 3),
        "p99_ms": round(float(np.percentile(whole, 99)), 3),
        "stages_median_ms": dict(
            zip(("features", "inference", "ranking"), (round(float(ms), 3) for ms in by_stage), strict=True)
        ),
        "first_choice_survives_screen": round(kept, 4),
        "lost_by_screen_predicted": round(lost, 5),
    }
    print(json.dumps({name: value for name, value in result.items() if name != "command"}, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
