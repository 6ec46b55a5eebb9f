"""Runs the checks of tests/integration/gpu on this machine's GPU, without pytest, and keeps what came of each.

The same checks are what `pytest -m gpu` runs; here they need nothing but what diode itself needs. What matters most
comes first, and the result is written after each: a run that is cut off brings home what it has. `--resume` keeps what
has passed with the same GPU, software and model, and begins with what was not run.
Usage: PYTHONPATH=src python benchmarks/gpu_checks.py --output benchmarks/results/gpu_tests_h200.json --seconds 200
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.integration.gpu.registry import Check

ROOT = Path(__file__).parents[1]
TOLD_LINES = 12
SAME = ("gpu", "torch", "triton", "commit", "trained_model_sha256")
"""What outcomes of two runs must agree in to be told as one."""
Write = Callable[[dict[str, Any]], None]


def all_checks() -> list[Check]:
    # A package of another project that is called `tests` and has an `__init__` would be preferred to this folder.
    tests = types.ModuleType("tests")
    tests.__path__ = [str(ROOT / "tests")]
    sys.modules.setdefault("tests", tests)
    from tests.integration.gpu.checks import CHECKS

    return CHECKS


def run_checks(
    checks: Sequence[Check], seconds: float, write: Write, before: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """What came of each: `passed`, `failed` with the message, or `not run` where time was over.

    Of outcomes of a run `before`, what has passed is kept, and what has failed comes after all that was not run.
    """
    started = time.monotonic()
    known = {row["name"]: row for row in before}
    outcomes = [known.get(check.name, {"name": check.name, "outcome": "not run"}) for check in checks]
    left = [number for number, row in enumerate(outcomes) if row["outcome"] != "passed"]
    for number in sorted(left, key=lambda number: outcomes[number]["outcome"] != "not run"):
        check = checks[number]
        if time.monotonic() - started > seconds:
            break
        row = outcomes[number] = {"name": check.name, **outcome_of(check)}
        write(summary(outcomes))
        print(f"{row['outcome']:7} {row['seconds']:6.1f} s  {check.name}  {row.get('message', '')}", flush=True)
    write(summary(outcomes))
    return outcomes


def outcome_of(check: Check) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            check.run(Path(folder))
        except Exception as error:  # noqa: BLE001  # whatever a check raises is its outcome
            lines = traceback.format_exception(error)
            told = {
                "outcome": "failed",
                "message": first_line(error),
                "trace": "".join(lines).splitlines()[-TOLD_LINES:],
            }
        else:
            told = {"outcome": "passed"}
    return {**told, "seconds": round(time.monotonic() - started, 2)}


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def summary(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts = {name: sum(row["outcome"] == name for row in outcomes) for name in ("passed", "failed", "not run")}
    return {**counts, "checks": list(outcomes)}


def outcomes_before(output: Path, head: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a run that is to be gone on with, if there was one. What another one has passed says nothing of this."""
    if not output.exists():
        return []
    found = json.loads(output.read_text())
    for name in SAME:
        if found.get(name) != head.get(name):
            raise SystemExit(
                f"{output}: its {name} is {found.get(name)}, here it is {head.get(name)}; leave out --resume"
            )
    return list(found["checks"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no further check is begun")
    parser.add_argument("--only", default="", help="those checks alone whose name has this in it")
    parser.add_argument("--model", type=Path, help="a trained one; default: the one that this checkout ships, if any")
    parser.add_argument("--resume", action="store_true", help="keep what has passed, and do the rest")
    arguments = parser.parse_args()
    if arguments.model is not None:
        os.environ["DIODE_TEST_MODEL"] = str(arguments.model)

    import diode
    from cold_compile import wait_for_compile_workers
    from diode.errors import DiodeError
    from diode.integration.device import current_hardware
    from diode.storage.atomic import write_atomically
    from provenance import provenance

    checks = [check for check in all_checks() if arguments.only in check.name]
    from tests.integration.gpu.lab import trained_card, trained_model

    diode.disable()  # an installed package of models must not choose beside the checks' own
    logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
    model, card = trained_model(), trained_card()
    try:
        hardware = current_hardware()
    except DiodeError as error:
        raise SystemExit(str(error)) from error
    head = {
        **provenance(hardware),
        "pytest": "present" if find_spec("pytest") else "absent",
        "trained_model": None if model is None else model.name,
        "trained_model_sha256": None if card is None else card.weights_sha256,
        "trained_model_knows": None if card is None else [*card.ops, *card.precisions],
    }
    print(f"{len(checks)} checks; pytest is {head['pytest']}, the trained model {head['trained_model'] or 'absent'}")
    before = outcomes_before(arguments.output, head) if arguments.resume else []
    wait_for_compile_workers()

    def write(found: dict[str, Any]) -> None:
        write_atomically(arguments.output, json.dumps({**head, **found}, indent=1).encode() + b"\n")

    outcomes = run_checks(checks, arguments.seconds, write, before)
    told = summary(outcomes)
    print(f"{told['passed']} passed, {told['failed']} failed, {told['not run']} not run")
    sys.exit(1 if told["failed"] or told["not run"] else 0)


if __name__ == "__main__":
    main()
