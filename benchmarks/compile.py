"""What a cold compile costs and what kernels it ends with: DEFAULT max-autotune, diode, EXHAUSTIVE. Needs a GPU.

In this order, so that a run that is cut off loses what matters least:
1. `--problems` problems of the test shapeset, which no model was trained on, spread over regimes and ops from the first
   one on. For each and in each mode one cold compile; the modes take turns at going first.
2. Three small real models, forward and backward, likewise; if time is short, `auto` is left out first.
3. Two more problems of the test shapeset, in processes of their own: all modes, then EXHAUSTIVE, killed after
   `--exhaustive-seconds`. One has a space that is small enough for the search to end. A search that was killed has
   `cut_off`, and its seconds and kernels are lower bounds.
benchmarks/cold_compile.py says what is counted, and how. `search_ratio_vs_default` and `search_ratio_vs_exhaustive` are
of `search_seconds`; `beyond_aten_ratio_vs_default` is the same by walls of whole compiles, less those without a search.

Times of kernels: what a mode compiled is called directly, as AOTAutograd returns it and without Dynamo's guards, by the
sweep's timer: in turns with all other modes of the problem in one process, each behind a flush of the L2, enqueued
while the GPU is kept busy, and taken only where the queue was proven to be ahead of the GPU, so that no launch latency
is in it (docs/timing.md). Steps of models are CUDA graphs of forward and backward, captured right after their compile
and timed the same way. Results of problems are compared with a reference in higher precision (`wrong`).

A model that does not know all ops and types of what is measured is refused, for where it falls back the figures would
be of Inductor's own search: `--ops` measures less, and `--any-op` measures it nevertheless.

The result is written after every problem. `--resume` keeps what stands there, if model and software are the same, and
does the rest. Usage: python benchmarks/compile.py --output benchmarks/results/compile_h200.json --seconds 400
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import diode
from cold_compile import OPTIONS
from compile_exhaustive import run_exhaustive, search_exhaustively
from compile_measuring import Bench, Budget, measure_model, measure_problem, noting
from compile_summary import (
    by_regime,
    chosen_problems,
    oddities,
    summary_of_exhaustive,
    summary_of_models,
    summary_of_problems,
)
from diode.integration.device import current_hardware
from diode.model import ModelWrapper
from diode.model.card import ModelCard
from diode.model.registry import weight_files
from diode.storage import read_shapeset
from diode.storage.atomic import write_atomically
from diode.types import Hardware, MMShape
from model_scope import unknown_to
from provenance import provenance
from small_models import SmallModel, small_models

ROOT = Path(__file__).parents[1]
PARTS = ("problems", "models", "exhaustive")
EXHAUSTIVE_PROBLEMS = ("mm 16x4096x512 bfloat16 NT", "mm 1000x3584x4096 bfloat16 NT")
"""A space of some hundred choices, whose search ends within a minute or so, and one of more than a thousand."""
BEFORE_A_SEARCH_SECONDS = 45.0
LEAST_SEARCH_SECONDS = 20.0
LEAST_MODEL_SECONDS = 20.0
MODEL_SECONDS = 40.0
"""What one is expected to take in its most important modes."""


class Results:
    """The result file: written after every measurement, with all figures that can be told by then."""

    def __init__(self, output: Path, head: dict[str, Any], resume: bool) -> None:
        self._output = output
        self._head = head
        self.parts: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
        if resume and output.exists():
            self._resume(json.loads(output.read_text()))

    def _resume(self, found: dict[str, Any]) -> None:
        for name in ("gpu", "torch", "triton", "model_sha256"):
            if found.get(name) != self._head[name]:
                raise SystemExit(f"{self._output}: its {name} is {found.get(name)}, here it is {self._head[name]}")
        self.parts = {part: list(found[f"{part}_measured"]) for part in PARTS}

    def has(self, part: str, name: str) -> bool:
        """What failed as a whole is no figure: a run that goes on tries it again."""
        wanted = {"exhaustive"} if part == "exhaustive" else set()
        return any(row["name"] == name and row["rows"] and wanted <= set(row["rows"]) for row in self.parts[part])

    def add(self, part: str, row: dict[str, Any]) -> None:
        self.parts[part] = [other for other in self.parts[part] if other["name"] != row["name"]] + [row]
        self.write()

    def write(self) -> None:
        exhaustive = summary_of_exhaustive(self.parts["exhaustive"])
        result = {
            **self._head,
            **summary_of_problems(self.parts["problems"]),
            "search_ratio_vs_exhaustive": exhaustive["search_ratio_vs_exhaustive"],
            "by_regime": by_regime(self.parts["problems"]),
            "models": summary_of_models(self.parts["models"]),
            "exhaustive": exhaustive,
            "oddities": oddities([row for rows in self.parts.values() for row in rows]),
            **{f"{part}_measured": rows for part, rows in self.parts.items()},
        }
        write_atomically(self._output, json.dumps(result, indent=1).encode() + b"\n")


def model_file(path: Path) -> Path:
    found = weight_files(path)
    if len(found) != 1:
        raise SystemExit(f"{path}: has {len(found)} models; name one with --model")
    return found[0]


@dataclass(frozen=True)
class Measured:
    """What a run is of: what `--parts` and `--ops` leave."""

    problems: tuple[MMShape, ...]
    models: tuple[SmallModel, ...]
    exhaustive: tuple[str, ...]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Measured:
        ops = {name.strip() for name in arguments.ops.split(",") if name.strip()}
        listed = [problem for problem in read_shapeset(arguments.shapeset) if not ops or problem.op in ops]
        if ops - {problem.op for problem in listed}:
            raise SystemExit(f"--ops {arguments.ops}: {arguments.shapeset} has no problem of some of these ops")
        parts = arguments.parts
        return cls(
            tuple(problem for problem in listed if "problems" in parts and str(problem) not in EXHAUSTIVE_PROBLEMS),
            tuple(m for m in small_models() if "models" in parts and (not ops or set(m.ops) <= ops)),
            tuple(name for name in EXHAUSTIVE_PROBLEMS if "exhaustive" in parts and name in map(str, listed)),
        )

    def check_known(self, card: ModelCard, shapeset: Path) -> None:
        """Refuses, before anything is compiled, a model that would fall back."""
        searched = [problem for problem in read_shapeset(shapeset) if str(problem) in self.exhaustive]
        unknown = unknown_to(card, [*self.problems, *searched], (op for model in self.models for op in model.ops))
        if unknown:
            raise SystemExit(
                f"{card} does not know {', '.join(unknown)}, which are to be measured: name the ops that it knows with "
                "--ops, or measure how it falls back with --any-op"
            )


def pending(results: Results, problems: Sequence[MMShape], hardware: Hardware, count: int) -> Iterator[MMShape]:
    """The chosen problems that have no row yet."""
    for problem in chosen_problems(problems, count, hardware):
        if not results.has("problems", str(problem)):
            yield problem


def run(arguments: argparse.Namespace, budget: Budget) -> None:
    model = ModelWrapper(model_file(arguments.model))
    measured = Measured.of(arguments)
    if not arguments.any_op:
        measured.check_known(model.card, arguments.shapeset)
    hardware = current_hardware()
    head = {
        **provenance(hardware),
        "model": str(model.card),
        "model_sha256": model.digest,
        "compile_workers": torch._inductor.config.compile_threads,
        "options": OPTIONS,
    }
    results = Results(arguments.output, head, arguments.resume)
    if {"problems", "models"} & set(arguments.parts):
        with tempfile.TemporaryDirectory() as temporary:
            bench = Bench(model.path, Path(temporary))
            bench.warm_up()
            print(f"ready after {budget.seconds - budget.left:.0f} s", flush=True)
            if "problems" in arguments.parts:
                reserved = reserved_seconds(results, measured.models, measured.exhaustive, budget.seconds)
                run_problems(bench, results, measured.problems, arguments.problems, budget, reserved)
            if "models" in arguments.parts:
                reserved = reserved_seconds(results, (), measured.exhaustive, budget.seconds)
                run_models(bench, results, measured.models, budget, reserved)
        torch.cuda.empty_cache()
    if "exhaustive" in arguments.parts:
        run_exhaustives(model.path, results, measured.exhaustive, arguments, budget)
    results.write()


def reserved_seconds(
    results: Results, models: Sequence[SmallModel], exhaustive: Sequence[str], of_seconds: float
) -> float:
    """What the parts that come later need, so that the first one does not take everything; at most half of the run."""
    left_models = sum(not results.has("models", model.name) for model in models)
    left_searches = sum(not results.has("exhaustive", name) for name in exhaustive)
    needed = left_models * MODEL_SECONDS + left_searches * (BEFORE_A_SEARCH_SECONDS + 2 * LEAST_SEARCH_SECONDS)
    return min(needed, of_seconds / 2)


def run_problems(
    bench: Bench, results: Results, problems: Sequence[MMShape], count: int, budget: Budget, reserved: float
) -> None:
    for turn, problem in enumerate(pending(results, problems, bench.hardware, count)):
        if not budget.allows("problem", reserved):
            return
        started = time.monotonic()
        results.add("problems", whole_or_failed(str(problem), partial(measure_problem, bench, problem, turn)))
        budget.took("problem", time.monotonic() - started)
        show(results.parts["problems"][-1], budget)


def run_models(bench: Bench, results: Results, models: Sequence[SmallModel], budget: Budget, reserved: float) -> None:
    for small in models:
        if not results.has("models", small.name) and budget.left - reserved > LEAST_MODEL_SECONDS:
            measure = partial(measure_model, bench, small, budget, reserved)
            results.add("models", whole_or_failed(small.name, measure))
            show(results.parts["models"][-1], budget)


def whole_or_failed(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One that fails, as for want of memory, is told in its row, and is not to cost the others."""
    errors: dict[str, str] = {}
    with noting(errors, "all of it"):
        return measure()
    with noting(errors, "freeing its memory"):
        torch.cuda.empty_cache()
    return {"name": name, "regime": None, "errors": errors, "rows": {}}


def run_exhaustives(
    model: Path, results: Results, searched: Sequence[str], arguments: argparse.Namespace, budget: Budget
) -> None:
    names = [name for name in searched if not results.has("exhaustive", name)]
    for number, name in enumerate(names):
        share = budget.left / (len(names) - number) - BEFORE_A_SEARCH_SECONDS
        if share > LEAST_SEARCH_SECONDS:
            seconds = min(arguments.exhaustive_seconds, share)
            deadline = time.time() + share + BEFORE_A_SEARCH_SECONDS
            row = run_exhaustive(name, Path(__file__), model, arguments.shapeset, seconds, deadline)
            results.add("exhaustive", row)
            show(row, budget)
        else:
            print(f"{name}: no time is left for its search; go on with --resume", flush=True)


def show(row: dict[str, Any], budget: Budget) -> None:
    cells = [told(mode, facts) for mode, facts in row["rows"].items()]
    cells += [f"{mode} FAILED: {error.partition(chr(10))[0]}" for mode, error in row.get("errors", {}).items()]
    print(f"{row['name']}: {'; '.join(cells)} ({budget.left:.0f} s left)", flush=True)


def told(mode: str, facts: dict[str, Any]) -> str:
    time_us = facts.get("kernel_us") or facts.get("step_us")
    parts = [mode, f"{facts['search_seconds']:.2f} s"]
    parts += [f"{time_us:.1f} us"] if time_us else []
    parts += ["cut off"] if facts.get("cut_off") else []
    parts += [f"WRONG: {facts['wrong']}"] if facts.get("wrong") else []
    parts += [f"fell back: {facts['fallbacks']}"] if facts.get("fallbacks") else []
    return " ".join(parts)


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "trained_models" / "diode_models")
    parser.add_argument("--shapeset", type=Path, default=ROOT / "diode_datasets" / "h200_test_shapeset.json")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900.0, help="of the whole run")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--exhaustive-seconds", type=float, default=240.0, help="of each EXHAUSTIVE search")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--ops", default="", help="only problems, and models, of these, as in mm,bmm")
    parser.add_argument("--any-op", action="store_true", help="measure also what the model does not know")
    parser.add_argument("--resume", action="store_true", help="keep what the output has, and do the rest")
    # how this program starts itself for a search
    parser.add_argument("--exhaustive-of", help=argparse.SUPPRESS)
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> None:
    arguments = parsed()
    budget = Budget(arguments.seconds)
    diode.disable()  # an installed package of models must not choose where torch is to be alone
    # Choices that fail are told with stack traces by the hundred.
    logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
    if arguments.exhaustive_of is not None:
        search_exhaustively(
            arguments.exhaustive_of, arguments.model, arguments.shapeset, arguments.told, arguments.folder
        )
    else:
        run(arguments, budget)


if __name__ == "__main__":
    main()
