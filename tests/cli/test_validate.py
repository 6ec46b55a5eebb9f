"""`diode validate-model` and `validate-max-autotune`: what they print, what they write, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import diode_here, refusal

from diode.storage import fastest, read_dataset, write_dataset
from diode.types import Dataset, MMShape, TritonGEMMConfig

COUNTS = [1, 2, 3, 5, 8, 10, 20, 50]
ANALYSIS = "model_performance_analysis_by_op.json"


@pytest.fixture
def judging(h200: Path, model: Path, tmp_path: Path) -> tuple[object, ...]:
    """The words that name model and data; they are run in `tmp_path`."""
    return ("--model", model, "--dataset", h200 / "validation.msgpack")


def as_json(folder: Path, *words: object) -> Any:
    done = diode_here(folder, *words, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_a_model_is_judged_in_words_with_units(judging: tuple[object, ...], tmp_path: Path) -> None:
    done = diode_here(tmp_path, "validate-model", *judging)
    assert (done.code, done.err) == (0, "")
    for said in ("MSE (log)", "RMSE (log)", "RMSE factor", "in 1 sigma", "% of oracle with", "regret@1 p95", "addmm"):
        assert said in done.out
    *_, worst = done.out.partition("worst predictions")
    rows = re.findall(r"^ addmm \S+ \S+ \S+ .* [\d.]+ (?:us|ms|s) +[\d.]+ (?:us|ms|s) +\S+x *$", worst, re.MULTILINE)
    assert len(rows) == 10
    assert list(tmp_path.iterdir()) == []


def test_json_has_losses_calibration_regrets_and_the_worst(judging: tuple[object, ...], tmp_path: Path) -> None:
    found = as_json(tmp_path, "validate-model", *judging, "--top-n-worst", 3)
    errors = found["errors"]
    assert errors["rmse"] == pytest.approx(errors["mse"] ** 0.5)
    assert errors["rmse_factor"] == pytest.approx(np.exp(errors["rmse"]))
    assert 0 < errors["within_one_sigma"] <= errors["within_two_sigma"] <= 1
    assert [entry["k"] for entry in found["ranking"]["overall"]] == COUNTS
    assert found["ranking"]["by_op"].keys() == {"addmm"}
    worst = found["worst"]
    assert [row["ratio"] for row in worst] == [pytest.approx(row["predicted_us"] / row["actual_us"]) for row in worst]
    off = [abs(np.log(row["ratio"])) for row in worst]
    assert len(off) == 3
    assert off == sorted(off, reverse=True)
    assert as_json(tmp_path, "validate-model", *judging, "--top-n-worst", 0)["worst"] == []


def test_the_size_of_batches_and_where_they_lie_change_no_figure(
    judging: tuple[object, ...], h200: Path, model: Path, tmp_path: Path
) -> None:
    usual = as_json(tmp_path, "validate-model", *judging)
    shutil.copy(h200 / "validation.msgpack", tmp_path)
    folder = as_json(tmp_path, "validate-model", "--model", model, "--dataset", ".", "--batch-size", 1)
    assert folder["problems"] == usual["problems"] == 21
    assert folder["errors"] == pytest.approx(usual["errors"], rel=2e-3)  # float32, summed in another order
    assert folder["ranking"] == usual["ranking"]


def test_the_comparison_is_printed_and_written_by_op(judging: tuple[object, ...], tmp_path: Path) -> None:
    done = diode_here(tmp_path, "validate-max-autotune", *judging)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"% of oracle with +" + " +".join(map(str, COUNTS)) + " *\n", done.out)
    for ranker in ("model", "library", "random", "model in full"):
        assert re.search(rf"^ {ranker}( +[\d.]+){{8}} *$", done.out, re.MULTILINE)
    assert done.out.endswith(f"figures by op: {ANALYSIS}\n")
    written = json.loads((tmp_path / ANALYSIS).read_text())
    assert written["rankings"].keys() == {"model", "library", "random", "model in full"}
    for ranking in written["rankings"].values():
        assert [entry["k"] for entry in ranking["overall"]] == COUNTS
        assert [entry["k"] for entry in ranking["by_op"]["addmm"]] == COUNTS
        efficiencies = [entry["efficiency"] for entry in ranking["overall"]]
        assert efficiencies == sorted(efficiencies)
    assert written["solution"] is None


def test_the_file_goes_where_it_is_told_and_equals_what_is_printed(judging: tuple[object, ...], tmp_path: Path) -> None:
    printed = as_json(tmp_path, "validate-max-autotune", *judging, "--output", "mine.json")
    assert json.loads((tmp_path / "mine.json").read_text()) == printed
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    again = as_json(tmp_path, "--seed", 3, "validate-max-autotune", *judging)
    assert again["rankings"]["random"] != printed["rankings"]["random"]
    assert again["rankings"]["model"] == printed["rankings"]["model"]


def test_solutions_of_each_form_are_compared_with(judging: tuple[object, ...], h200: Path, tmp_path: Path) -> None:
    best = fastest(read_dataset(h200 / "validation.msgpack"))
    tiles = [row for row in best if isinstance(row.choice, TritonGEMMConfig) and isinstance(row.problem, MMShape)]
    assert tiles
    flat = [
        {
            "M": row.problem.M,
            "N": row.problem.N,
            "K": row.problem.K,
            "block_m": row.choice.block_m,
            "block_n": row.choice.block_n,
            "block_k": row.choice.block_k,
        }
        for row in tiles
    ]
    fields = ("block_m", "block_n", "block_k", "num_stages", "num_warps", "group_m")
    public = [{"name": "triton_mm", **{name: getattr(row.choice, name) for name in fields}} for row in tiles]
    (tmp_path / "flat.json").write_text(json.dumps({"name": "flat", "configs": flat}))
    (tmp_path / "public.json").write_text(json.dumps({"config": public}))
    made = diode_here(tmp_path, "dataset", "solution", h200 / "validation.msgpack", "--output", "ours.csv")
    assert made.code == 0

    def against(name: str) -> Any:
        words = ("validate-max-autotune", *judging, "--max-autotune-solution", name)
        return as_json(tmp_path, *words)["solution"]

    ours = against("ours.csv")
    assert (ours["name"], ours["problems"], ours["not_covered"]) == ("ours", 21, 0)
    assert ours["solution_efficiency"] == pytest.approx(100.0)
    named = against("flat.json")
    assert (named["name"], named["problems"], named["not_covered"]) == ("flat", len(tiles), 21 - len(tiles))
    assert named["solution_efficiency"] == pytest.approx(100.0)
    assert list(named["model_efficiency"]) == [str(count) for count in COUNTS]
    anywhere = against("public.json")
    assert anywhere["name"] == "public"
    assert anywhere["problems"] >= len(tiles)
    shown = diode_here(tmp_path, "validate-max-autotune", *judging, "--max-autotune-solution", "flat.json")
    assert re.search(rf"against flat +problems +choices +efficiency.*\n.*\n solution +{len(tiles)} +", shown.out)
    assert f"{21 - len(tiles)} problems that the solution says nothing about are left out" in shown.out


def test_what_is_missing_empty_or_of_something_else_is_one_line_and_nothing_is_written(
    h200: Path, mixed: Path, model: Path, tmp_path: Path
) -> None:
    for name in ("small.safetensors", "small.json"):
        shutil.copy(model.parent / name, tmp_path)
    shutil.copy(h200 / "validation.msgpack", tmp_path / "good.msgpack")
    shutil.copy(mixed / "b.json", tmp_path / "mm.json")
    shutil.copy(mixed / "c.msgpack", tmp_path / "h100.msgpack")
    write_dataset(Dataset.of([]), tmp_path / "empty.parquet")
    (tmp_path / "torn.safetensors").write_bytes(model.read_bytes()[:100])
    shutil.copy(model.parent / "small.json", tmp_path / "torn.json")
    (tmp_path / "folder").mkdir()
    (tmp_path / "none_of_these.json").write_text('{"name": "x", "configs": [{"M": 1, "N": 1, "K": 1, "block_m": 16}]}')
    (tmp_path / "not_a_solution.json").write_text("{}")
    wrong: list[tuple[str, str, tuple[object, ...], int, str]] = [
        ("none.pt", "good.msgpack", (), 1, "none.pt: cannot be read: there is no such model"),
        ("torn.safetensors", "good.msgpack", (), 1, "torn.safetensors"),
        ("small.safetensors", "none.parquet", (), 1, "none.parquet: cannot be read: No such file"),
        ("small.safetensors", "folder", (), 1, "folder: holds no .json, .msgpack, .parquet file"),
        ("small.safetensors", "empty.parquet", (), 2, "empty.parquet: holds no measurement"),
        ("small.safetensors", "mm.json", (), 2, "mm.json: holds no time of an op that the model knows (addmm)"),
        (
            "small.safetensors",
            "h100.msgpack",
            (),
            2,
            "measured on NVIDIA H100, but the model was trained on NVIDIA H200",
        ),
        ("small.safetensors", "good.msgpack", ("--batch-size", 0), 2, "Invalid value for '--batch-size'"),
        ("small.safetensors", "good.msgpack", ("--device", "tpu"), 2, "--device tpu: use cpu, cuda, or cuda:1"),
        ("small.safetensors", "good.msgpack", ("--device", "cuda"), 1, "this machine has 0 CUDA devices"),
    ]
    for command in ("validate-model", "validate-max-autotune"):
        for given, data, more, code, message in wrong:
            assert message in refusal(tmp_path, command, "--model", given, "--dataset", data, *more, code=code)
        assert "Missing option '--dataset'" in refusal(tmp_path, command, "--model", "small.safetensors", code=2)
    comparing = ("validate-max-autotune", "--model", "small.safetensors", "--dataset", "good.msgpack")
    for solution, code, message in (
        ("none.json", 1, "none.json: cannot be read: No such file"),
        ("not_a_solution.json", 1, "this is no solution file"),
        ("none_of_these.json", 2, "solution 'x' allows no measured choice for any problem of the data set"),
        ("good.msgpack", 2, "'.msgpack' is no suffix of solutions"),
    ):
        assert message in refusal(tmp_path, *comparing, "--max-autotune-solution", solution, code=code)
    assert "missing/a.json: its folder does not exist" in refusal(
        tmp_path, *comparing, "--output", "missing/a.json", code=2
    )


def test_other_hardware_is_judged_where_that_is_asked_for(mixed: Path, model: Path, tmp_path: Path) -> None:
    words = ("validate-model", "--model", model, "--dataset", mixed / "c.msgpack", "--any-hardware")
    assert as_json(tmp_path, *words)["problems"] == 21
