"""Runs the Inductor tests with one torch, in an environment of its own, and notes what came of it.

The outcome, and what diode meets in that torch, go into benchmarks/results/torch_versions.json; the tables of
docs/torch-versions.md are written from that file. Run with the interpreter that the environment is to have; only the
standard library is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from setup_venv import ROOT, Builder, Venv
from torch_choice import SetupError, release

RESULTS: Final = ROOT / "benchmarks" / "results" / "torch_versions.json"
DOCUMENT: Final = ROOT / "docs" / "torch-versions.md"
INTERFACES: Final = ROOT / "scripts" / "torch_interfaces.py"
TESTS: Final = (
    "tests/integration",
    "tests/collection/test_collector.py",
    "tests/collection/test_planning.py",
    "tests/collection/kernels",
)
_BROKEN_OFF: Final = 2
"""The exit code from which on pytest has not run all that was asked of it."""

Record = dict[str, Any]


class NotRun(Exception):
    """Nothing is to be noted; the message says why."""


def environment_of(asked: str) -> tuple[str, Venv]:
    """The release that TORCH names, and where its environment lies."""
    named = Path(asked).name.split("-")[1] if asked.endswith(".whl") and "-" in asked else asked
    if not asked:
        raise NotRun("name a torch, such as TORCH=2.15.0")
    release(named)  # whatever is no version is refused before a folder is named by it
    version = named.partition("+")[0]
    return version, Venv(f".venv-torch-{version}")


def met_in(python: Path) -> Record:
    """What scripts/torch_interfaces.py finds there."""
    answer = subprocess.run([python, INTERFACES], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        raise NotRun(f"{INTERFACES.name} failed, see above")
    found: Record = json.loads(answer.stdout.splitlines()[-1])  # torch may have said something before
    return found


def outcome_in(report: Path) -> Record:
    """Counts, and the names of what did not pass, of a JUnit report."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    wrong = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in wrong})
    return {
        "outcome": "failed" if names or not cases else "passed",
        "passed": len({(case.get("classname"), case.get("name")) for case in cases}) - len(names) - len(skipped),
        "failed": len(names),
        "skipped": len(skipped),
        "failed_tests": names,
    }


def run_tests(python: Path, tests: tuple[str, ...], more: list[str]) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            str(python),
            "-m",
            "pytest",
            *tests,
            "--continue-on-collection-errors",
            f"--junitxml={report}",
            *more,
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code >= _BROKEN_OFF or not report.exists():
            raise NotRun(f"pytest did not come to its end (exit code {code})")
        return outcome_in(report)


def noted(results: Record, version: str, record: Record) -> Record:
    """The results with this record in place of an earlier one, the oldest torch first."""
    torches = {**results.get("torches", {}), version: record}
    ordered = sorted(torches, key=lambda known: tuple(int(part) for part in re.findall(r"\d+", known)))
    return {"tests": list(TESTS), "torches": {known: torches[known] for known in ordered}}


def replace_file(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    os.replace(beside, path)


def row(cells: list[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def table(head: list[object], rows: list[list[object]]) -> str:
    return "\n".join([row(head), f"|{'---|' * len(head)}", *(row(cells) for cells in rows)])


def interfaces_table(results: Record) -> str:
    head: list[object] = ["torch", "hook", "registration", "known to torch's caches by", "hook calls for an addmm"]
    rows: list[list[object]] = []
    for version, record in results["torches"].items():
        met = record["interfaces"]
        key = met["cache_key"] if met["cache_key"] != "uuid()" else "`uuid()`"
        cells = [version, f"`{met['hook']}`", f"`{met['registration']}`", key, met["addmm_hook_calls"]]
        rows.append([*cells, met["feedback_arguments"]])
    return table([*head, "arguments of a feedback saver"], rows)


def outcomes_table(results: Record) -> str:
    head: list[object] = ["torch", "triton", "Python", "outcome", "passed", "failed", "skipped", "date", "commit"]
    rows: list[list[object]] = []
    for record in results["torches"].values():
        run, software = record["run"], record["software"]
        counts = [run["outcome"], run["passed"], run["failed"], run["skipped"]]
        commit = software["commit"][:7] + ("-dirty" if software["commit"].endswith("-dirty") else "")
        rows.append([software["torch"], software["triton"], software["python"], *counts, software["taken"], commit])
    return table(head, rows)


def rendered(document: str, results: Record) -> str:
    """The document with its tables as the results have them."""
    for name, text in (("interfaces", interfaces_table(results)), ("outcomes", outcomes_table(results))):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = document.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise NotRun(f"{DOCUMENT} lacks the lines {begin} and {end}, between which a table belongs")
        document = f"{before}{begin}\n{text}\n{end}{after}"
    return document


def read_results() -> Record:
    if not RESULTS.exists():
        return {}
    results: Record = json.loads(RESULTS.read_text())
    return results


def write_tables() -> None:
    replace_file(DOCUMENT, rendered(DOCUMENT.read_text(), read_results()))


def run(asked: str, more: list[str]) -> int:
    version, venv = environment_of(asked)
    if not venv.is_current(asked):
        Builder(venv).build(asked)
    print(f"==> interfaces of torch {version}", flush=True)
    met = met_in(venv.python)
    print(f"==> Inductor tests with torch {version}", flush=True)
    outcome = run_tests(venv.python, TESTS, more)
    if more:
        print("==> not noted: with PYTEST_ARGS it is not the whole of the tests")
    else:
        record = {**met, "run": {**outcome, "command": f"make test-torch TORCH={version}"}}
        replace_file(RESULTS, json.dumps(noted(read_results(), version, record), indent=2) + "\n")
        write_tables()
        print(f"==> noted in {RESULTS.relative_to(ROOT)} and {DOCUMENT.relative_to(ROOT)}")
    return 0 if outcome["outcome"] == "passed" else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--torch", default="", help="a version such as 2.15.0, or a wheel")
    parser.add_argument("--tables", action="store_true", help="run nothing, write the document's tables anew")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest")
    arguments = parser.parse_args()
    try:
        if arguments.tables:
            write_tables()
            return 0
        return run(arguments.torch.strip(), arguments.pytest)
    except (NotRun, SetupError) as error:
        print(f"test-torch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("test-torch: stopped; nothing was noted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
