"""What does `import diode` cost, with the library alone and with a package of models? Fresh processes, taken in turns.

Milliseconds are of the import alone, without starting Python: beyond `import torch`, by itself, and where Inductor is
loaded already, so that the models are registered on the spot; beside the time that passed, that of the CPU, which other
work on the machine disturbs less. The package of models is a folder that says of itself what pip would have written of
torch-diode.
Usage: python benchmarks/import_time.py --models trained_models/diode_models
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import diode
from diode.integration.device import current_hardware
from diode.model import ModelRegistry
from provenance import provenance

MODELS: Final = Path("trained_models/diode_models")
OUTPUT: Final = Path("benchmarks/results/import_time.json")
PROGRAM: Final = """
import json, sys, time
start = time.perf_counter()
{before}
middle, cpu = time.perf_counter(), time.process_time()
import diode
end, cpu = time.perf_counter(), time.process_time() - cpu
heavy = sorted({{"torch._inductor", "triton", "torch", "numpy"}} & sys.modules.keys())
status = {{name: str(found) for name, found in diode.get_integration_status().items()}} if {ask} else {{}}
print(json.dumps({{
    "before_ms": 1e3 * (middle - start), "ms": 1e3 * (end - middle), "cpu_ms": 1e3 * cpu,
    "imported": heavy, "status": status,
}}))
"""
BEFORE: Final = {
    "alone": "",
    "beyond_torch": "import torch",
    "beyond_torch_and_inductor": "import torch, torch._inductor.compile_fx",
}
GOALS_MS: Final = {
    "library": {"beyond_torch": 100.0},
    "with_models": {"beyond_torch": 150.0, "beyond_torch_and_inductor": 150.0},
}


def package_of(models: Path, folder: Path) -> Path:
    """An installed torch-diode: the package, and what importlib reads of it."""
    (folder / "diode_models").symlink_to(models.resolve())
    described = folder / f"torch_diode-{diode.__version__}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-diode\nVersion: {diode.__version__}\n")
    (described / "entry_points.txt").write_text("[diode.models]\ntorch-diode = diode_models:FOLDER\n")
    return folder


def once(stage: str, packages: str, ask: bool) -> dict[str, Any]:
    # Bytecode is there, as pip leaves it of whatever it installs: the first run, which is not counted, writes it.
    unwanted = ("DIODE_", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=BEFORE[stage], ask=ask)],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"PYTHONPATH": packages},
    )
    if done.stderr:
        raise SystemExit(f"import diode said something: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def summary(runs: list[dict[str, Any]], goal_ms: float | None) -> dict[str, Any]:
    times = sorted(run["ms"] for run in runs)
    found = {
        "median_ms": round(statistics.median(times), 2),
        "least_ms": round(times[0], 2),
        "most_ms": round(times[-1], 2),
        "cpu_median_ms": round(statistics.median(run["cpu_ms"] for run in runs), 2),
        "imports_before_ms": round(statistics.median(run["before_ms"] for run in runs), 1),
        "imported_after": runs[0]["imported"],
    }
    if goal_ms is not None:
        found |= {"goal_ms": goal_ms, "kept": found["median_ms"] < goal_ms}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=MODELS, help="the package of models: a folder")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    if entry_points(group="diode.models"):
        raise SystemExit("a package of models is installed here, so the library alone cannot be timed: uninstall it")
    registry = ModelRegistry()
    registry.add(arguments.models)
    if not registry.pointers:
        raise SystemExit(f"{arguments.models}: holds no model; {'; '.join(registry.problems.values())}")
    with tempfile.TemporaryDirectory() as place:
        packages = {"library": "", "with_models": str(package_of(arguments.models, Path(place)))}
        cases = [(setup, stage) for setup in packages for stage in BEFORE]
        for setup, stage in cases:  # files are read from the disk for the first time
            once(stage, packages[setup], ask=False)
        runs: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in cases}
        for _ in range(arguments.rounds):
            for setup, stage in cases:
                runs[setup, stage].append(once(stage, packages[setup], ask=False))
        status = {setup: once("beyond_torch", given, ask=True)["status"] for setup, given in packages.items()}
    result: dict[str, Any] = {
        **provenance(current_hardware("cpu")),
        "models": [str(pointer.card) for pointer in registry.pointers],
        "rounds": arguments.rounds,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
    }
    for setup in packages:
        stages = {stage: summary(runs[setup, stage], GOALS_MS[setup].get(stage)) for stage in BEFORE}
        result[setup] = {"status": status[setup], **stages}
        for stage, found in stages.items():
            goal = f", goal {found['goal_ms']:.0f} ms" if "goal_ms" in found else ""
            print(f"{setup:12} {stage:26} {found['median_ms']:8.2f} ms, {found['cpu_median_ms']:.2f} ms of CPU{goal}")
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
