"""What came of the Inductor tests with each torch: how it is counted, noted, and told in the documents."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_choice import TRITON_FOR_TORCH, SetupError, release
from torch_versions import DOCUMENT, RESULTS, TESTS, NotRun, environment_of, noted, rendered, run_tests

ROOT = Path(__file__).parents[2]
REPORTED = json.loads(RESULTS.read_text())

MIXED = """
import pytest
def test_right(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_some(number): assert number == 1
@pytest.fixture
def untidy():
    yield
    raise RuntimeError
def test_fails_twice(untidy): assert False
def test_left_out(): pytest.skip()
"""


def outcome_of(tmp_path: Path, text: str) -> dict[str, object]:
    tests = tmp_path / "test_mixed.py"
    tests.write_text(text)
    return run_tests(Path(sys.executable), (str(tests),), ["-p", "no:cacheprovider", "--rootdir", str(tmp_path)])


def record(torch: str, **outcome: object) -> dict[str, object]:
    run = {"outcome": "passed", "passed": 3, "failed": 0, "skipped": 0, **outcome}
    software = {"torch": torch, "triton": "3.6.0", "python": "3.11.7", "commit": "0123456789", "taken": "2026-11-19"}
    interfaces = {
        "hook": "_finalize_template_configs",
        "registration": "inductor_choices_class",
        "cache_key": "the pickled factory",
        "addmm_hook_calls": 1,
        "feedback_arguments": 5,
    }
    return {"interfaces": interfaces, "software": software, "run": run}


def test_the_document_tells_what_the_file_says() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text, REPORTED) == text


def test_the_torches_that_are_promised_were_tried() -> None:
    tried = {release(version) for version in REPORTED["torches"]}
    assert {(2, 10), (2, 11), (2, 13), max(TRITON_FOR_TORCH)} <= tried
    for version, found in REPORTED["torches"].items():
        assert found["software"]["torch"].partition("+")[0] == version
        assert found["run"]["failed"] == len(found["run"]["failed_tests"])
    assert REPORTED["tests"] == list(TESTS)
    assert all((ROOT / path).exists() for path in TESTS)


def test_each_test_is_counted_once_whatever_went_wrong_with_it(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, MIXED)
    assert (outcome["outcome"], outcome["passed"], outcome["failed"], outcome["skipped"]) == ("failed", 2, 2, 1)
    assert [name.rpartition("::")[2] for name in outcome["failed_tests"]] == ["test_fails_twice", "test_some[2]"]


def test_tests_that_pass_are_told_so(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "def test_right(): pass\n")
    assert (outcome["outcome"], outcome["passed"], outcome["failed_tests"]) == ("passed", 1, [])


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "import no_such_package\n")
    assert (outcome["outcome"], outcome["passed"], outcome["failed"]) == ("failed", 0, 1)


def test_what_was_not_run_to_its_end_has_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="exit code 4"):
        run_tests(Path(sys.executable), (str(tmp_path / "nowhere.py"),), [])


def test_another_run_replaces_the_earlier_one_and_the_oldest_torch_is_first() -> None:
    results: dict[str, object] = {}
    for version in ("2.13.0", "2.9.1", "2.10.0"):
        results = noted(results, version, record(version))
    results = noted(results, "2.13.0", record("2.13.0", outcome="failed", failed=1))
    assert list(results["torches"]) == ["2.9.1", "2.10.0", "2.13.0"]
    assert results["torches"]["2.13.0"]["run"]["outcome"] == "failed"


def test_only_the_tables_of_the_document_are_written_anew() -> None:
    text = DOCUMENT.read_text()
    changed = rendered(text, noted({}, "2.10.0", record("2.10.0+cu126", passed=41)))
    assert "\n| 2.10.0+cu126 | 3.6.0 | 3.11.7 | passed | 41 | 0 | 0 | 2026-11-19 | 0123456 |\n" in changed
    assert [line for line in changed.splitlines() if not line.startswith("|")] == [
        line for line in text.splitlines() if not line.startswith("|")
    ]
    with pytest.raises(NotRun, match="interfaces: begin"):
        rendered("no tables here", REPORTED)


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("2.15.0", "2.15.0"),
        ("2.13.0+cpu", "2.13.0"),
        ("wheels/torch-2.12.0+cpu-cp311-cp311-linux_x86_64.whl", "2.12.0"),
    ],
)
def test_each_torch_has_an_environment_of_its_own_that_git_ignores(asked: str, version: str) -> None:
    found, venv = environment_of(asked)
    assert (found, venv.path) == (version, ROOT / f".venv-torch-{version}")
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert ".venv-torch-*/" in ignored


@pytest.mark.parametrize(("asked", "why"), [("", "TORCH=2.15.0"), ("newest", "newest"), ("../x.whl", "x.whl")])
def test_what_names_no_torch_is_refused(asked: str, why: str) -> None:
    with pytest.raises((NotRun, SetupError), match=why):
        environment_of(asked)


def test_what_cannot_be_set_up_is_told_and_not_noted(tmp_path: Path) -> None:
    for folder in ("scripts", "requirements", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    script = tmp_path / "scripts" / "torch_versions.py"
    answer = subprocess.run(
        [sys.executable, str(script), "--torch", "2.4.0", "--"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert "TORCH=2.4.0: diode needs torch 2.10 or later" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.glob("benchmarks/**/*")) == []
