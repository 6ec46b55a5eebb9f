"""EXHAUSTIVE searches, each in a process of its own that is killed when its time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cold_compile import OPTIONS, kernels_in
from compile_measuring import MODES, Bench, ProblemBench
from compile_summary import regime_of_rows
from diode.storage import read_shapeset

STARTING_SECONDS = 150.0
"""More than a process needs to come to its EXHAUSTIVE search."""
ENDING_SECONDS = 10.0
"""For killing a process, counting what it left, and removing that."""
SEARCH_FOLDER = "exhaustive"


def search_exhaustively(name: str, model: Path, shapeset: Path, told: Path, folder: Path) -> None:
    """What the process does: all modes, then the search. It tells of each step, for the next may be cut off."""

    def tell(**facts: Any) -> None:
        with told.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    (problem,) = [problem for problem in read_shapeset(shapeset) if str(problem) == name]
    bench = Bench(model, folder)
    bench.warm_up()
    with torch.no_grad():
        measured = ProblemBench(bench, problem)
        for mode in MODES:
            measured.compile(mode)
        measured.take_times()
        tell(rows=measured.rows, regime=regime_of_rows(problem, measured.rows))
        measured.compile("exhaustive", folder / SEARCH_FOLDER, lambda: tell(entered=time.time()))
        tell(rows=measured.rows, done=True)
        measured.take_times()
        tell(rows=measured.rows)


def run_exhaustive(
    name: str, program: Path, model: Path, shapeset: Path, seconds: float, deadline: float
) -> dict[str, Any]:
    """Starts the process, waits for it, kills it when its time is over, and gives what it told until then.

    The search may take `seconds`; whatever the process is at, it is killed in time to be told of by the `deadline`,
    a time of the clock.
    """
    # a worker that was killed may be writing its last file
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        told, folder = Path(temporary, "told.jsonl"), Path(temporary, "caches")
        told.touch()
        options: dict[str, object] = {
            "--exhaustive-of": name,
            "--told": told,
            "--folder": folder,
            "--model": model,
            "--shapeset": shapeset,
            "--output": os.devnull,
        }
        command = [sys.executable, str(program), *(str(part) for option in options.items() for part in option)]
        with subprocess.Popen(command, start_new_session=True) as process:
            try:
                wait_for_search(process.poll, told, seconds, deadline - ENDING_SECONDS)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        ended = time.time()
        row = cut_off(read_told(told), ended, kernels_in(folder / SEARCH_FOLDER))
        result = {"name": name, "exit_code": process.returncode, **row}
        if "exhaustive" not in row["rows"]:
            result["errors"] = {"exhaustive": f"no search began; the process ended with {process.returncode}"}
        return result


def wait_for_search(poll: Callable[[], int | None], told: Path, seconds: float, deadline: float) -> None:
    """Returns when the process has ended, or is to be killed: `seconds` count from where its search began."""
    started = time.time()
    while poll() is None and time.time() < deadline:
        facts = read_told(told)
        searching = "entered" in facts and not facts.get("done")
        since, limit = (facts["entered"], seconds) if searching else (started, seconds + STARTING_SECONDS)
        if time.time() - since > limit:
            return
        time.sleep(0.2)


def read_told(told: Path) -> dict[str, Any]:
    """All facts, later ones in the place of earlier ones; a line that is not whole yet is none."""
    facts: dict[str, Any] = {}
    for line in told.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            facts |= json.loads(line)
    return facts


def cut_off(facts: dict[str, Any], ended: float, kernels: int) -> dict[str, Any]:
    """The rows that were told; a search that began and did not end is told by lower bounds."""
    rows = dict(facts.get("rows", {}))
    if "entered" in facts and "exhaustive" not in rows:
        rows["exhaustive"] = {
            "cut_off": True,
            "search_seconds": round(ended - facts["entered"], 3),
            "kernels_compiled": kernels,
        }
    return {"regime": facts.get("regime"), "rows": {mode: rows[mode] for mode in OPTIONS if mode in rows}}
