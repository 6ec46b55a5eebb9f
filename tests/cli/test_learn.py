"""`diode learn`, as a user runs it: on what an H200 measured, as if its library were slower than the model knows."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.learning.made_up import HERE, LIBRARY, config, problem_of, tuned

from diode.features.table import LIBRARY as IS_LIBRARY
from diode.integration.device import running_commit
from diode.learning.store import StoreWriter
from diode.model.card import read_card
from diode.model.fitting import FitSettings, fit, save_model
from diode.model.gbdt import TreeSettings
from diode.model.registry import ModelRegistry
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.model.wrapper import ModelWrapper
from diode.storage import read_dataset, write_dataset
from diode.types import MMShape

DATA = Path(__file__).parents[2] / "diode_datasets" / "h200_train_1.parquet"
SMALL = TrainingSettings(hidden=16, layers=1, members=2, epochs=4, batch_size=16)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the data that it was trained on, and a store of other problems."""
    folder = tmp_path_factory.mktemp("home")
    everything = read_dataset(DATA)
    known = everything.select(everything.columns.problem_id % 30 == 0)
    write_dataset(known, folder / "known.parquet")
    save_model(fit(known, FitSettings(network=SMALL, screen_hidden=8, version="3")), folder / "base.safetensors")
    truth = Truth.of(everything.select(everything.columns.problem_id % 15 == 1))
    writer = StoreWriter(folder / "store")
    for one in truth.problems:
        slower = np.where(truth.table.kind[one.choice_ids] == IS_LIBRARY, 2.0, 1.0)
        times = zip(truth.choices_of(one), (one.time_us * slower).tolist(), strict=True)
        writer.append(tuned(one.problem, {choice: None if np.isnan(us) else us for choice, us in times}, HERE))
    writer.close()
    return folder


def diode(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diode.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def digests(folder: Path) -> dict[str, str]:
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


BASE = ("learn", "--store", "store", "--model", "base.safetensors")


def test_a_store_becomes_a_better_model_that_says_what_it_was_made_of(home: Path) -> None:
    before = digests(home)
    done = diode(home, *BASE, "--output", "new.safetensors", "--dataset", "known.parquet", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["problems"] == told["trained_problems"] + told["judged_problems"]
    assert told["left_out"] > 10  # the tiny ones
    assert told["autotunings"] == told["problems"] + told["left_out"]
    assert 0 < told["kept_problems"] <= 66
    assert told["regret_at_3"] < told["regret_at_3_before"]
    assert told["regret_at_1"] < told["regret_at_1_before"]
    after = digests(home)
    assert {name: after[name] for name in before} == before  # the store, the model and the data are as they were
    base, new = read_card(home / "base.json"), read_card(home / "new.json")
    assert new.version.startswith("3+learned.")
    assert [source.name for source in new.data] == ["known.parquet", "store store"]
    assert (new.data[1].problems, new.data[1].measurements) == (told["problems"], told["measurements"])
    assert new.settings["tuned_from"] == f"{base}, {base.weights_sha256}"
    assert new.metrics["held_out_regret_at_1"] == pytest.approx(told["regret_at_1"])
    assert new.commit == running_commit()
    assert (set(new.torch), set(new.hardware)) == ({"2.11.0+cu130", "2.13.0"}, set(base.hardware))
    prediction = ModelWrapper(home / "new.safetensors").predict(
        HERE.hardware, MMShape.of("addmm", 512, 512, 512), [LIBRARY]
    )
    assert np.isfinite(prediction.log_ratio).all()


def test_the_summary_names_measurements_problems_and_regret(home: Path) -> None:
    done = diode(home, *BASE, "--output", "other.pt", "--num-epochs", "1", "--model-version", "4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "other.pt: diode-matmul 4"
    assert "measurements of" in lines[1]
    assert lines[2].endswith("and 0 that were known before")
    assert "regret with 1 choice" in lines[3]
    assert read_card(home / "other.json").version == "4"


def test_what_was_learned_last_is_found(home: Path) -> None:
    """Twice from the old model and once from a new one, in no more than a day or two."""
    folder = home / "learned"
    folder.mkdir()
    for suffix in (".safetensors", ".json"):
        (folder / f"base{suffix}").write_bytes((home / f"base{suffix}").read_bytes())
    for model, output in (("base", "z"), ("base", "y"), ("z", "x")):
        paths = ("--model", f"learned/{model}.safetensors", "--output", f"learned/{output}.safetensors")
        done = diode(home, "learn", "--store", "store", *paths, "--num-epochs", "1")
        assert done.returncode == 0, done.stderr
        registry = ModelRegistry()
        registry.add(folder)
        found = registry.find(hardware=HERE.hardware)
        assert found is not None
        assert found.pointer.path == folder / f"{output}.safetensors"
    assert len({pointer.version for pointer in registry.pointers}) == 4


def refused(folder: Path, *words: str, code: int = 2) -> str:
    before = digests(folder)
    done = diode(folder, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert digests(folder) == before
    message = done.stderr.removeprefix("error: ").strip()
    assert "\n" not in message
    return message


def test_what_cannot_be_done_is_one_line_and_writes_nothing(home: Path) -> None:
    output = ("--output", "x.safetensors")
    base = ("--model", "base.safetensors")
    assert refused(home, "learn", "--store", "nowhere", *base, *output, code=1) == (
        "nowhere: no such folder; name the one that DIODE_LEARN named"
    )
    assert "is the model to go on from" in refused(home, *BASE, "--output", "base.pt")
    assert "a model of type deep ends in" in refused(home, *BASE, "--output", "x.parquet")
    missing = refused(home, "learn", "--store", "store", "--model", "no.safetensors", *output, code=1)
    assert missing.startswith("no.json: cannot")
    (home / "few").mkdir()
    assert "few: holds 0 problems" in refused(home, "learn", "--store", "few", *base, *output, code=2)
    writer = StoreWriter(home / "few")
    for size in range(2048, 2048 + 64 * 5, 64):
        writer.append(tuned(problem_of(size), {LIBRARY: 90.0, config(64): 80.0}))
    writer.append(tuned(problem_of(64), {LIBRARY: 19.0, config(64): 18.0}))
    writer.close()
    assert refused(home, "learn", "--store", "few", *base, *output, code=2) == (
        "few: holds 5 problems whose times can be compared (1 more are too short, or have one time only); "
        "8 are needed: compile more with DIODE_LEARN set"
    )


def test_a_damaged_store_is_refused(home: Path) -> None:
    (home / "damaged").mkdir()
    (file,) = (home / "store").iterdir()
    content = bytearray(file.read_bytes())
    content[40] ^= 0x10
    (home / "damaged" / file.name).write_bytes(content)
    message = refused(home, "learn", "--store", "damaged", *BASE[3:], "--output", "x.safetensors", code=1)
    assert message.startswith(f"damaged/{file.name}: damaged at byte 16, after 0 whole records; restore the file")


def test_trees_cannot_go_on_learning(home: Path) -> None:
    known = read_dataset(home / "known.parquet")
    save_model(fit(known, FitSettings(type="gbdt", trees=TreeSettings(trees=2))), home / "trees.txt")
    paths = ("--store", "store", "--model", "trees.txt", "--output", "x.safetensors")
    message = refused(home, "learn", *paths, code=2)
    assert message == "trees.txt: a model of type gbdt cannot go on learning; name a network, or train anew"
