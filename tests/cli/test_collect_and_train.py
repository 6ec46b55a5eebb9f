"""`diode collect-and-train`: all of it on this CPU, then each part left out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.cli.running import Done, diode_here, refusal

from diode.model.card import read_card
from diode.storage import read_dataset
from diode.types import MMShape

MEASURED = ("--device", "cpu", "--dtypes", "float32", "--layouts", "NT", "--ops", "mm", "--max-gflop", 0.001)
TRAINED = ("--num-epochs", 2, "--hidden-size", 4, "--layers", 1, "--members", 1)
WORDS = ("collect-and-train", "--num-shapes", 2, "--validation-shapes", 1, *MEASURED, *TRAINED)
MADE = {".steps.json", "model.json", "model.safetensors", "training.json", "validation.json"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, diode_here(folder, "--format", "json", "--seed", 5, *WORDS, "--output-dir", "new/run")


def run(folder: Path, *words: object) -> Done:
    done = diode_here(folder, "--format", "json", "--seed", 5, *WORDS, "--output-dir", ".", *words)
    assert done.code == 0, done.err
    return done


@pytest.fixture
def folder(whole: tuple[Path, Done], tmp_path: Path) -> Path:
    """A copy of what the whole made."""
    shutil.copytree(whole[0] / "new/run", tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_it_measures_trains_and_judges_by_problems_that_are_not_in_training(whole: tuple[Path, Done]) -> None:
    folder, done = whole
    assert done.code == 0, done.err
    assert {path.name for path in (folder / "new/run").iterdir()} == MADE
    assert re.search(r"^collection: 2 problems on cpu$", done.err, re.MULTILINE)
    assert re.search(r"^validation-set: 1 problems on cpu$", done.err, re.MULTILINE)
    training, validation = (read_dataset(folder / "new/run" / f"{name}.json") for name in ("training", "validation"))
    assert (len(training.problems), len(validation.problems)) == (2, 1)
    groups = [{p.twin_group for p in data.problems if isinstance(p, MMShape)} for data in (training, validation)]
    assert not groups[0] & groups[1]
    card = read_card(folder / "new/run" / "model.json")
    assert [source.name for source in card.data] == ["training.json"]
    assert (card.settings["hidden"], card.settings["epochs"], card.seed) == (4, 2, 5)
    assert "% of oracle with" in done.out


def test_started_again_it_only_judges(folder: Path) -> None:
    done = run(folder)
    assert done.err.splitlines() == [
        "collection: training.json stands",
        "validation-set: validation.json stands",
        "training: model.safetensors stands",
    ]
    assert "% of oracle with" in done.out
    assert {path.name for path in folder.iterdir()} == MADE


def test_each_part_can_be_left_out(folder: Path) -> None:
    model = (folder / "model.safetensors").read_bytes()
    assert "% of oracle" not in run(folder, "--skip-validation").out
    (folder / "validation.json").unlink()
    nothing_to_judge_by = ("--skip-validation-set", "--skip-validation")
    again = run(folder, "--skip-collection", *nothing_to_judge_by, "--learning-rate", 0.02, "--tensorboard", "logs")
    assert [line.partition(" ")[0] for line in again.err.splitlines()] == ["training", "network", "network"]
    assert (folder / "model.safetensors").read_bytes() != model
    assert list((folder / "logs").iterdir())
    (folder / "model.safetensors").unlink()
    left_out = run(folder, "--skip-training", *nothing_to_judge_by)
    assert (left_out.out, left_out.err) == ("", "collection: training.json stands\n")
    assert not (folder / "model.safetensors").exists()


def test_the_folder_can_be_trained_on_and_looked_into_as_any_other(folder: Path) -> None:
    stats = diode_here(folder, "dataset", "stats", ".")
    assert (stats.code, stats.err) == (0, "")
    assert re.search(r"mm +3 +\d+ +\d+ +0 ", stats.out)


def test_what_a_part_that_is_left_out_would_have_made_must_be_there(folder: Path) -> None:
    words = (*WORDS, "--output-dir", ".")
    for name, skipped in (
        ("training.parquet", ("--skip-collection",)),
        ("validation.parquet", ("--skip-validation-set",)),
    ):
        message = refusal(folder, *words, *skipped, code=2)
        assert message.startswith(f"{name}: is not there; leave out {skipped[0]}")
    (folder / "model.safetensors").unlink()
    message = refusal(folder, "--format", "json", *words, "--skip-collection", "--skip-training", code=2)
    assert message.startswith("model.safetensors: is not there; leave out --skip-training")


def test_data_of_other_arguments_are_not_taken_for_these(folder: Path) -> None:
    message = refusal(folder, "--format", "json", "--seed", 6, *WORDS, "--output-dir", ".", code=2)
    assert message.startswith("training.json: is from other arguments; name another --output-dir")


def test_wrong_words_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    new = ("--output-dir", "new")
    wrong: list[tuple[tuple[object, ...], int, str]] = [
        ((), 2, "Missing option '--output-dir'"),
        (("--output-dir", "file"), 1, "file: cannot be a folder: File exists"),
        ((*new, "--budget", "x"), 2, "--budget 'x': is no duration"),
        ((*new, "--ops", "conv"), 2, "'conv' is not one of"),
        ((*new, "--train-device", "gpu"), 2, "--train-device gpu: use cpu, cuda, or cuda:1"),
        ((*new, "--model-type", "gbdt"), 2, "trees have no --hidden-size, --layers, --members"),
        ((*new, "--validation-shapes", 0), 2, "Invalid value for '--validation-shapes'"),
    ]
    for more, code, message in wrong:
        assert message in refusal(tmp_path, *WORDS, *more, code=code)
