"""The table of a model beside its baselines: from files to figures, by the words of docs/evaluation.md."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.model.made_up import config, problem_of, ranked, timed, truth_of

import ranking
from diode.model import ModelWrapper
from diode.model.evaluation import evaluate, regrets
from diode.model.fitting import FitSettings, fit, save_model
from diode.model.rankers import library_ranker, model_ranker
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.storage import filter_dataset, read_dataset, write_dataset
from diode.types import AtenChoice, Dataset, Problem

DATA = Path(__file__).parents[2] / "diode_datasets" / "h200_train_1.parquet"
SMALL = TrainingSettings(hidden=16, layers=1, members=1, epochs=4, batch_size=8)
LIBRARY = AtenChoice("mm")


@pytest.fixture
def truth() -> Truth:
    """Near-winners were timed twice; in the second round of the tiny problem the first round's winner is 10% behind."""
    first = {512: {16: 100.0, 32: 104.0, 64: 150.0}, 64: {16: 10.0, 32: 10.5, 64: 19.0}}
    second = {512: {16: 100.0, 32: 104.0}, 64: {16: 11.0, 32: 10.0}}
    return Truth.of(
        Dataset.of(
            timed(problem_of(size), config(block), time_us, round=number)
            for number, rows in ((1, first), (2, second))
            for size, times in rows.items()
            for block, time_us in times.items()
        )
    )


def test_the_noise_floor_is_told_over_all_problems_and_by_regime(truth: Truth) -> None:
    floor = ranking.floor_of(truth)
    assert floor is not None
    assert (floor["problems"], floor["worst"]) == (2, 0.1)
    assert floor["p50"] == 0.05
    assert floor["efficiency"] == pytest.approx(100 / 1.1**0.5, abs=1e-3)
    found = evaluate(truth, regrets(truth, ranking.oracle_ranker))
    regimes = ranking.by_regime(truth, {name: {} for name in found.by_regime})
    assert regimes["tiny"]["noise_floor"]["p50"] == 0.1
    assert regimes["ordinary"]["noise_floor"]["p50"] == 0.0
    assert regimes["ordinary"]["problems"] == 1
    assert ranking.floor_of(truth_of({problem_of(64): {config(16): 1.0}})) is None


def test_the_first_round_is_what_a_search_without_a_second_gets(truth: Truth) -> None:
    once = evaluate(truth, regrets(truth, ranking.first_round_ranker))
    assert once.at(1).regret_worst == pytest.approx(0.1)
    assert once.at(2).regret_worst == 0.0
    assert evaluate(truth, regrets(truth, ranking.oracle_ranker)).at(1).efficiency == 100.0


def test_chance_is_the_mean_of_many_draws() -> None:
    """Of two choices, one twice as slow, chance loses half of the time a factor of two."""
    truth = truth_of({problem_of(size): {config(16): 1.0, config(32): 2.0} for size in range(64, 96)})
    found = ranking.judged(truth, ranking.rank_by_chance(truth, seed=1), 0.01)
    assert found["efficiency"]["1"] == pytest.approx(100 / 2**0.5, rel=0.04)
    assert found["efficiency"]["2"] == 100.0
    assert found["winner_kept"]["1"] == pytest.approx(0.5, abs=0.05)


def test_figures_are_told_apart_by_whose_kernel_wins() -> None:
    truth = truth_of(
        {
            problem_of(64): {LIBRARY: 30.0, config(16): 33.0},
            problem_of(65): {LIBRARY: 30.0, config(16): 30.0 / 2},
        }
    )
    blind = ranking.Ranked(regrets(truth, library_ranker))
    found = ranking.by_oracle(truth, blind, 0.01)
    assert {name: (part["problems"], part["efficiency"]["1"]) for name, part in found.items()} == {
        "aten": (1, 100.0),
        "triton_gemm": (1, 50.0),
    }


def test_how_few_choices_beat_eight_of_a_baseline() -> None:
    model = {"efficiency": {"1": 95.0, "2": 97.0, "8": 99.0}}
    assert ranking.choices_to_beat(model, {"efficiency": {"8": 96.0}}) == 2
    assert ranking.choices_to_beat(model, {"efficiency": {"8": 99.0}}) is None


def test_the_worst_problems_come_first_with_what_they_lost_to() -> None:
    truth = truth_of(
        {
            problem_of(64): {LIBRARY: 40.0, config(16): 30.0, config(32): 33.0},
            problem_of(65): {LIBRARY: 40.0, config(16): 30.0, config(32): 60.0},
            problem_of(66): {config(16): 30.0, config(32): None},
        }
    )
    worst = ranking.worst_problems(truth, ranked({64: [32, 16], 65: [32, 16], 66: [32, 16]}))
    assert [row["problem"].split()[1] for row in worst] == ["66x66x66", "65x65x65", "64x64x64"]
    assert worst[0]["chosen_us"] is None
    assert worst[1] == {
        "problem": "mm 65x65x65 bfloat16 NN",
        "regime": "ordinary",
        "chosen": str(config(32)),
        "chosen_us": 60.0,
        "oracle": str(config(16)),
        "oracle_us": 30.0,
        "library_us": 40.0,
        "oracle_place": 2,
    }


def test_a_baseline_that_is_not_installed_is_said_to_be_left_out(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nvMatmulHeuristics", None)
    makers = {name: ranking.fixed_baselines()[name] for name in ("nvMatmulHeuristics", "oracle")}
    ranked_ones, left_out = ranking.rank_baselines(truth, makers)
    assert set(ranked_ones) == {"oracle"}
    assert "torch-diode-lib[baselines]" in left_out["nvMatmulHeuristics"]


def rows_of(inner: range) -> Dataset:
    """Problems of the H200's training data whose K is in a range, and small enough in number for a test."""

    def wanted(problem: Problem) -> bool:
        return problem.K in inner and problem.M % 3 == 0 and problem.M * problem.N > 2**16  # type: ignore[union-attr]

    return filter_dataset(read_dataset(DATA), problem=wanted)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ranking")
    paths = {name: folder / f"{name}.parquet" for name in ("training", "data")}
    write_dataset(rows_of(range(800, 2000)), paths["training"])
    write_dataset(rows_of(range(2000, 3000)), paths["data"])
    models = folder / "models" / "inner"
    models.mkdir(parents=True)
    save_model(
        fit(read_dataset(paths["training"]), FitSettings(network=SMALL, screen_hidden=8)), models / "m.safetensors"
    )
    return {**paths, "model": folder / "models"}


def run(files: dict[str, Path], output: Path) -> dict[str, Any]:
    named = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    ranking.main([*named, "--output", str(output)])
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def test_from_files_to_figures_the_same_each_time(files: dict[str, Path], tmp_path: Path) -> None:
    result = run(files, tmp_path / "one.json")
    truth = Truth.of(read_dataset(files["data"]))
    model = ModelWrapper(files["model"] / "inner" / "m.safetensors")
    expected = evaluate(truth, regrets(truth, model_ranker(model.model)))
    assert result["test_problems"] == len(truth)
    assert result["model"]["sha256"] == model.digest
    assert result["gpu"] == "NVIDIA H200"
    for name in ("efficiency", "regret_p50", "regret_p95", "regret_worst"):
        for entry in expected.overall:
            assert result[name][str(entry.k)] == pytest.approx(getattr(entry, name), abs=1e-4)
    assert sum(part["problems"] for part in result["by_regime"].values()) == len(truth)
    baselines = {"gbdt", "public architecture", "static table", "Inductor DEFAULT", "library", "random", "oracle"}
    assert baselines <= set(result["baselines"])
    assert result["baselines"]["oracle"]["efficiency"]["1"] == 100.0
    again = run(files, tmp_path / "two.json")
    changing = {"command", "taken"}
    assert {k: v for k, v in result.items() if k not in changing} == {
        k: v for k, v in again.items() if k not in changing
    }


def test_a_test_problem_with_a_twin_in_training_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "ranking.json"
    with pytest.raises(SystemExit, match="twin"):
        run({**files, "data": files["training"]}, output)
    assert not output.exists()


def test_a_folder_without_a_model_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no model"):
        run({**files, "model": tmp_path}, tmp_path / "ranking.json")


def test_times_that_are_missing_in_the_first_round_do_not_lead(truth: Truth) -> None:
    measured = truth.problems[0]
    unseen = replace(measured, first_us=np.where(np.arange(len(measured.first_us)) == 0, np.nan, measured.first_us))
    assert ranking.first_round_ranker(truth, unseen)[-1] == 0
