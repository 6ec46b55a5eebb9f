"""How long do a million measurements take to read, and how much memory? One fresh process per format.

The measurements are made up; their tables and columns are as distinct as those of a real sweep. Seconds are of
`read_dataset` alone, without starting Python; the peak of memory is of the whole process.
Usage: python benchmarks/reading.py --output benchmarks/results/reading.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from diode.collection.samplers import LogNormalSampler
from diode.integration.device import current_hardware
from diode.storage import DATASET_SUFFIXES, write_dataset
from diode.types import (
    AtenChoice,
    Choice,
    Columns,
    Dataset,
    DecomposeKConfig,
    Environment,
    Failure,
    MMShape,
    PersistentTMAConfig,
    TimingMethod,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200
from provenance import provenance

MOST_SECONDS, MOST_BYTES = 5.0, 2 * 10**9
# VmHWM and not ru_maxrss, which also counts the process that started this one.
READER = """
import json, sys, time
from diode.storage import read_dataset
started = time.perf_counter()
dataset = read_dataset(sys.argv[1])
seconds = time.perf_counter() - started
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak_bytes = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"rows": len(dataset), "read_seconds": seconds, "peak_bytes": peak_bytes}))
"""
TILES, STAGES, WARPS = (16, 32, 64, 128, 256), (2, 3, 4, 5), (4, 8)


def choices_of_a_problem(count: int, op: str, generator: np.random.Generator) -> list[Choice]:
    tiles = list(product(TILES, TILES, (16, 32, 64, 128), STAGES, WARPS))
    found: list[Choice] = [AtenChoice(op), *(DecomposeKConfig(2**power) for power in range(1, 6))]
    for number in generator.choice(len(tiles), size=count - len(found), replace=False).tolist():
        m, n, k, stages, warps = tiles[number]
        if number % 4:
            found.append(TritonGEMMConfig("triton::mm", m, n, k, stages, warps, even_k=number % 3 == 0))
        else:
            found.append(PersistentTMAConfig("triton::mm_persistent_tma", m, n, k, stages, warps, True, False, 132))
    return found


def made_up(problems: tuple[MMShape, ...], per_problem: int) -> Dataset:
    """Problems with `per_problem` choices each, every tenth of them a failure."""
    generator = np.random.default_rng(0)
    numbers: dict[Choice, int] = {}
    choice_ids = [
        numbers.setdefault(choice, len(numbers))
        for problem in problems
        for choice in choices_of_a_problem(per_problem, problem.op, generator)
    ]
    rows = len(choice_ids)
    failed = generator.random(rows) < 0.1
    time_us = np.where(failed, np.nan, np.exp(generator.normal(4, 2, rows)))
    return Dataset(
        problems=problems,
        choices=tuple(numbers),
        environments=(Environment(H200, torch="2.11.0", triton="3.6.0", driver="580.1"),),
        methods=(TimingMethod("diode-sweep", "median", 2**28, True, 1.25, "static"),),
        failures=tuple(Failure("shared_memory", f"needs {262144 + 1024 * number} bytes") for number in range(50)),
        columns=Columns(
            problem_id=np.repeat(np.arange(len(problems), dtype=np.int32), per_problem),
            choice_id=np.array(choice_ids, dtype=np.int32),
            environment_id=np.zeros(rows, dtype=np.int32),
            method_id=np.zeros(rows, dtype=np.int32),
            failure_id=np.where(failed, generator.integers(0, 50, rows), -1).astype(np.int32),
            time_us=time_us,
            min_us=time_us * 0.98,
            spread=np.where(failed, np.nan, generator.random(rows) * 0.05),
            repeats=np.where(failed, -1, generator.integers(5, 100, rows)).astype(np.int32),
            clock_mhz=np.where(failed, -1, generator.integers(1200, 1980, rows)).astype(np.int32),
        ),
    )


def measured(dataset: Dataset, suffix: str, folder: Path) -> dict[str, Any]:
    path = folder / f"dataset{suffix}"
    started = time.perf_counter()
    write_dataset(dataset, path)
    write_seconds = time.perf_counter() - started
    answer = subprocess.run([sys.executable, "-c", READER, str(path)], check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(answer.stdout)
    if row["rows"] != len(dataset):
        raise SystemExit(f"{path}: {row['rows']} rows were read, but {len(dataset)} were written")
    kept = row["read_seconds"] <= MOST_SECONDS and row["peak_bytes"] <= MOST_BYTES
    return {
        "format": suffix[1:],
        "file_bytes": path.stat().st_size,
        "write_seconds": write_seconds,
        **row,
        "kept": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2500)
    parser.add_argument("--per-problem", type=int, default=400)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    dataset = made_up(LogNormalSampler(42).sample(arguments.problems), arguments.per_problem)
    print(f"{len(dataset)} rows, {len(dataset.problems)} problems, {len(dataset.choices)} distinct choices")
    print(f"{'format':8} {'file MB':>8} {'write s':>8} {'read s':>8} {'peak MB':>8}  within 5 s and 2 GB")
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(dataset, suffix, Path(folder)) for suffix in DATASET_SUFFIXES]
    for row in rows:
        megabytes, peak = row["file_bytes"] / 1e6, row["peak_bytes"] / 1e6
        seconds = f"{row['write_seconds']:8.2f} {row['read_seconds']:8.2f}"
        print(f"{row['format']:8} {megabytes:8.1f} {seconds} {peak:8.0f}  {'yes' if row['kept'] else 'no'}")
    if arguments.output:
        head = provenance(current_hardware("cpu"))
        limits = {"most_seconds": MOST_SECONDS, "most_bytes": MOST_BYTES}
        result = {**head, "limits": limits, "distinct_choices": len(dataset.choices), "formats": rows}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
