"""How fast does the sweep measure, and how far can its labels be trusted? Needs a GPU.

1. A sweep over a shapeset for `--seconds`, from nothing: no kernel is compiled beforehand. Its data set is kept.
2. On pairs of problem and choice from the sweep: the same choices as static kernels beside the family kernels, in one
   interleaved round (the bias of compiling once); all of it a second time (the noise floor: what regret the fastest
   choice of the first timing has in the second); Inductor's own benchmarker on the same static kernels.
3. EXHAUSTIVE max-autotune on two small problems, for the same count per second.

`--ops` and `--without` leave out problems, as with diode collect-shapeset.
Usage: python benchmarks/collection.py --shapeset diode_datasets/h200_train_shapeset.json --seconds 380
           --data train.parquet --output benchmarks/results/collection_h200.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np

from diode.cli.console import err
from diode.cli.listed_problems import listed_problems
from diode.cli.progress import CollectionDisplay
from diode.collection.gpu.timer import Repeats
from diode.collection.run import CollectionPlan, run_collection
from diode.collection.sampling import ChoiceSample
from diode.collection.sweep import SweepSettings
from diode.errors import DiodeError
from diode.settings import cache_folder
from diode.storage.atomic import write_atomically
from diode.types import Choice, Dataset, MMShape, PersistentTMAConfig, TritonGEMMConfig
from provenance import provenance

EXHAUSTIVE_PROBLEMS = ((16, 4096, 1024), (16, 8192, 1024))
"""Small spaces, that a search comes to the end of: more of a flattery for Inductor than large ones would be."""
EXHAUSTIVE_LIMIT_SECONDS = 60.0
STARTING_LIMIT_SECONDS = 120.0
PAIR_PROBLEMS = 56
FASTEST, OTHERS = 5, 3
PAIR_REPEATS = Repeats(at_least=7, at_most=15, hopeless=1e9, seconds=2.0)
LEAST_COMPARED_US = 50.0


def sweep(problems: tuple[MMShape, ...], seconds: float, choices: int, data: Path) -> tuple[Dataset, dict[str, Any]]:
    plan = CollectionPlan(
        problems=problems,
        output=data,
        settings=SweepSettings(sample=ChoiceSample(choices, shared=True)),
        budget_seconds=seconds,
        command=shlex.join(["python", *sys.argv]),
    )
    with CollectionDisplay(err, seconds) as display:
        result = run_collection(plan, display)
    progress = result.progress
    facts = {
        "seconds": result.seconds,
        "measurements": progress.measurements,
        "measurements_per_second": progress.measurements / result.seconds,
        "failures": progress.failures,
        "problems": progress.problems_done,
        "kernels_compiled": progress.kernels_compiled,
        "kernels_per_second": progress.kernels_compiled / result.seconds,
        "gpu_busy_share": (progress.trying_seconds + progress.timing_seconds) / result.seconds,
        "trying_seconds": progress.trying_seconds,
        "timing_seconds": progress.timing_seconds,
        "discarded_samples": progress.discarded_samples,
        "restarts": progress.restarts,
        "broken": progress.broken[:20],
    }
    return result.dataset, facts


def exhaustive_autotune(answers: Any) -> None:
    """In a process of its own, for it may be cut off: one answer for each problem that it came to the end of."""
    import torch
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    from diode.collection import MatmulDatasetCollector

    warm = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    torch.compile(torch.mm)(warm, warm)
    answers.put(None)
    for m, n, k in EXHAUSTIVE_PROBLEMS:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).t()
        torch._dynamo.reset()
        settings = {"max_autotune_gemm_search_space": "EXHAUSTIVE", "autotune_num_choices_displayed": 0}
        with fresh_cache(), config.patch(settings), MatmulDatasetCollector() as collector:
            started = time.perf_counter()
            torch.compile(torch.mm, mode="max-autotune-no-cudagraphs")(a, b)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - started
        measured = collector.dataset()
        timed = int(measured.succeeded.sum())
        answers.put({"problem": f"{m}x{n}x{k}", "seconds": seconds, "timed": timed, "choices": len(measured)})


def inductor_rate(
    search: Callable[[Any], None] = exhaustive_autotune,
    limit_seconds: float = EXHAUSTIVE_LIMIT_SECONDS,
    starting_seconds: float = STARTING_LIMIT_SECONDS,
) -> dict[str, Any]:
    """A rate of None where no search came to its end within the limit."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=search, args=(answers,))
    process.start()
    runs: list[dict[str, Any]] = []
    try:
        answers.get(timeout=starting_seconds)
        deadline = time.monotonic() + limit_seconds
        while len(runs) < len(EXHAUSTIVE_PROBLEMS):
            runs.append(answers.get(timeout=max(deadline - time.monotonic(), 0.1)))
    except Empty:
        pass  # what has ended until then counts
    finally:
        process.kill()
        process.join()
    seconds = sum(run["seconds"] for run in runs)
    timed = sum(run["timed"] for run in runs)
    rate = timed / seconds if seconds else None
    return {"inductor_exhaustive_per_second": rate, "runs": runs, "limit_s": limit_seconds}


@dataclass
class PairProblem:
    """One problem with some of its choices, each as a static and as a family kernel."""

    problem: MMShape
    choices: list[Choice]
    planned: dict[str, dict[Choice, Any]] = field(default_factory=dict)
    rounds: list[dict[tuple[str, Choice], tuple[float, float]]] = field(default_factory=list)
    """For each pass (median, minimum) by form and choice."""
    inductor_us: dict[Choice, float] = field(default_factory=dict)


def choose_pairs(dataset: Dataset) -> list[PairProblem]:
    """Problems over the whole range of times, with their fastest choices and some others."""
    lots = random.Random(7)
    columns = dataset.columns
    rows_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(dataset.succeeded):
        if isinstance(dataset.choices[columns.choice_id[row]], TritonGEMMConfig | PersistentTMAConfig):
            rows_of.setdefault(int(columns.problem_id[row]), []).append(int(row))
    rich = [rows for rows in rows_of.values() if len(rows) >= FASTEST + OTHERS]
    rich.sort(key=lambda rows: columns.time_us[rows].min())
    picked = [rich[round(number * (len(rich) - 1) / (PAIR_PROBLEMS - 1))] for number in range(PAIR_PROBLEMS)]
    pairs = []
    for rows in picked:
        ordered = sorted(rows, key=lambda row: columns.time_us[row])
        slower = [row for row in ordered[FASTEST:] if columns.time_us[row] < 5 * columns.time_us[ordered[0]]]
        chosen = ordered[:FASTEST] + lots.sample(slower, min(OTHERS, len(slower)))
        problem = dataset.problems[columns.problem_id[rows[0]]]
        assert isinstance(problem, MMShape)
        pairs.append(PairProblem(problem, [dataset.choices[columns.choice_id[row]] for row in chosen]))
    return pairs


def compile_pairs(pairs: list[PairProblem]) -> None:
    from diode.collection.kernels.compiler import CompileTarget
    from diode.collection.kernels.pool import Compiled, CompileTask, WorkerPool
    from diode.collection.planning import Planner, PlanRequest
    from diode.integration.device import current_hardware

    hardware = current_hardware()
    planner = Planner()
    pool = WorkerPool(len(os.sched_getaffinity(0)))
    tasks = 0
    for pair in pairs:
        for form in ("static", "family"):
            request = PlanRequest(pair.problem, hardware, only=tuple(pair.choices), form=form)  # type: ignore[arg-type]
            planned = planner.plan(request)
            pair.planned[form] = {choice.choice: choice.kernel for choice in planned.choices}
            kernels = tuple((choice.kernel.key, choice.kernel.source) for choice in planned.choices if choice.kernel)
            for first in range(0, len(kernels), 2):
                task = CompileTask(kernels[first : first + 2], CompileTarget.of(hardware), str(store()))
                pool.submit(task)
                tasks += 1
    while tasks:
        for result in pool.results(1.0):
            assert isinstance(result, Compiled), result
            tasks -= 1
    pool.close()


def store() -> Path:
    return cache_folder() / "kernels"


def time_pairs(pairs: list[PairProblem]) -> None:
    import torch
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    from diode.collection.gpu.launcher import KernelLoader
    from diode.collection.gpu.operands import Operands
    from diode.collection.gpu.timer import InterleavedTimer, sample_all
    from diode.collection.kernels.store import kernel_path, read_kernel
    from diode.integration.device import current_hardware
    from diode.types import AtenChoice

    device = torch.device("cuda", 0)
    hardware = current_hardware()
    timer = InterleavedTimer(device, hardware.l2_bytes or 0)
    loader = KernelLoader(device, hardware.shared_memory_per_block or 0)
    inductor = InductorBenchmarker()
    for number in range(2):
        for pair in pairs:
            operands = Operands(pair.problem, device)
            library = AtenChoice(pair.problem.op)
            aten = operands.backend_launch(library)
            assert aten is not None
            launches: dict[tuple[str, Choice], Callable[[], object]] = {("aten", library): aten}
            for form, kernels in pair.planned.items():
                for choice, kernel in kernels.items():
                    compiled = read_kernel(kernel_path(store(), kernel.key))
                    signature = kernel.source.signature
                    pointers = [operands.pointer(name) for name, kind in signature if kind.startswith("*")]
                    launches[form, choice] = loader.launch(compiled, signature, kernel.grid, (*pointers, *kernel.sizes))
            for launch in launches.values():
                launch()
            torch.cuda.synchronize()
            started = time.perf_counter()
            sampled = sample_all(
                timer, list(launches.values()), PAIR_REPEATS, lambda since=started: time.perf_counter() - since
            )
            times = {k: (s.median, s.minimum) for k, s in zip(launches, sampled, strict=True) if s is not None}
            pair.rounds.append(times)
            if number == 0:
                for (form, choice), launch in launches.items():
                    if form == "static" and times[form, choice][1] >= LEAST_COMPARED_US:
                        pair.inductor_us[choice] = float(inductor.benchmark_gpu(launch)) * 1e3


def spread(values: list[float], *shares: int) -> dict[str, float]:
    return {f"p{share:02}": float(np.percentile(values, share)) for share in shares} | {"count": len(values)}


def judge(pairs: list[PairProblem]) -> dict[str, Any]:
    bias = [
        (pair.rounds[0]["family", choice][0] / pair.rounds[0]["static", choice][0] - 1, str(pair.problem), str(choice))
        for pair in pairs
        for choice in pair.choices
        if ("family", choice) in pair.rounds[0] and ("static", choice) in pair.rounds[0]
    ]
    agreement = [
        pair.rounds[0]["static", choice][1] / time_us - 1
        for pair in pairs
        for choice, time_us in pair.inductor_us.items()
    ]
    repeated, regrets, rows = [], [], []
    for pair in pairs:
        first, second = ({key: t for key, t in times.items() if key[0] != "family"} for times in pair.rounds)
        repeated += [first[key][0] / second[key][0] - 1 for key in first if key in second]
        winner = min(first, key=lambda key: first[key][0])
        best = min(time for time, _ in second.values())
        regrets.append(second[winner][0] / best - 1)
        rows.append({"problem": str(pair.problem), "oracle_us": best, "regret_of_first": regrets[-1]})
    of_winners = [
        pair.rounds[0]["family", pair.choices[0]][0] / pair.rounds[0]["static", pair.choices[0]][0] - 1
        for pair in pairs
        if ("family", pair.choices[0]) in pair.rounds[0] and ("static", pair.choices[0]) in pair.rounds[0]
    ]
    sizes = [abs(value) for value, _, _ in bias]
    tma = [abs(value) for value, _, choice in bias if "tma" in choice]
    return {
        "noise_floor_p50": float(np.percentile(regrets, 50)),
        "noise_floor_p95": float(np.percentile(regrets, 95)),
        "noise_floor_problems": len(regrets),
        "agreement_with_inductor_p50": float(np.percentile(np.abs(agreement), 50)),
        "agreement_with_inductor_signed": spread(agreement, 5, 50, 95),
        "compile_once_bias_p50": float(np.percentile(sizes, 50)),
        "compile_once_bias_p95": float(np.percentile(sizes, 95)),
        "compile_once_bias_signed": spread([value for value, _, _ in bias], 5, 25, 50, 75, 95),
        "compile_once_bias_persistent_tma": spread(tma, 50, 95) if tma else None,
        "compile_once_bias_of_fastest": spread(of_winners, 5, 50, 95),
        "repeated_median": spread([abs(value) for value in repeated], 50, 95),
        "worst_bias": sorted(bias, key=lambda row: -abs(row[0]))[:20],
        "bias_pairs": bias,
        "noise_rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapeset", type=Path, required=True)
    parser.add_argument("--ops", default="", help="only these, as in mm,bmm")
    parser.add_argument("--without", type=Path, action="append", help="leave out what this data set has measured")
    parser.add_argument("--seconds", type=float, default=320.0)
    parser.add_argument("--choices", type=int, default=12)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        problems = listed_problems(arguments.shapeset, arguments.ops, arguments.without, arguments.data)
    except DiodeError as error:
        raise SystemExit(str(error)) from error
    if store().exists():
        raise SystemExit(f"{store()} exists: name an empty folder with DIODE_CACHE, so that compiling is counted")
    dataset, facts = sweep(problems, arguments.seconds, arguments.choices, arguments.data)
    result: dict[str, Any] = {"measurements_per_second": facts["measurements_per_second"], "sweep": facts}
    from diode.integration.device import current_hardware

    def keep() -> None:
        content = json.dumps({**provenance(current_hardware()), **result}, indent=1)
        write_atomically(arguments.output, content.encode() + b"\n")

    keep()
    print(json.dumps(facts, indent=1), flush=True)
    pairs = choose_pairs(dataset)
    compile_pairs(pairs)
    time_pairs(pairs)
    result |= judge(pairs)
    keep()
    exhaustive = inductor_rate()
    result |= {
        "inductor_exhaustive_per_second": exhaustive["inductor_exhaustive_per_second"],
        "inductor_exhaustive": exhaustive,
    }
    keep()
    shown = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
