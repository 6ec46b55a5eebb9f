"""Training: deterministic, resumable, stopped early with the best weights, better than chance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.model.conftest import DATA, SMALL

from diode.errors import FileFormatError, UsageError
from diode.model.checkpoint import Checkpoint
from diode.model.evaluation import Order, Ranker, evaluate, regrets
from diode.model.examples import split_by_twins
from diode.model.inference import ArrayNetwork
from diode.model.rankers import model_ranker, random_ranker
from diode.model.training import EpochReport, TrainedNetwork, TrainingSettings, train_network
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import NetworkModel
from diode.storage import read_dataset


def same_weights(one: TrainedNetwork, other: TrainedNetwork) -> bool:
    states = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def model_of(trained: TrainedNetwork) -> NetworkModel:
    parameters = {name: value.numpy() for name, value in trained.network.state_dict().items()}
    return NetworkModel(ArrayNetwork(trained.network.spec, parameters), None, 1.0)


@pytest.fixture(scope="module")
def trained(truth: Truth) -> TrainedNetwork:
    return train_network(truth, SMALL)


def test_a_seed_decides_everything(truth: Truth, trained: TrainedNetwork) -> None:
    assert same_weights(trained, train_network(truth, SMALL))
    assert not same_weights(trained, train_network(truth, replace(SMALL, seed=7)))


def test_an_interrupted_training_ends_with_the_weights_of_an_uninterrupted_one(
    truth: Truth, trained: TrainedNetwork, tmp_path: Path
) -> None:
    path = tmp_path / "model.checkpoint"
    reports: list[EpochReport] = []

    def stop_in_the_second_member(report: EpochReport) -> None:
        reports.append(report)
        if report.member == 2 and report.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_network(truth, SMALL, stop_in_the_second_member, Checkpoint(path, "same"))
    resumed: list[EpochReport] = []
    again = train_network(truth, SMALL, resumed.append, Checkpoint(path, "same"))
    assert same_weights(again, trained)
    assert [(report.member, report.epoch) for report in resumed] == [(2, epoch) for epoch in range(3, 7)]


def test_a_checkpoint_of_another_training_is_not_taken_up(truth: Truth, tmp_path: Path) -> None:
    path = tmp_path / "model.checkpoint"
    train_network(truth, replace(SMALL, members=1, epochs=1), checkpoint=Checkpoint(path, "one"))
    assert Checkpoint(path, "one").begun
    assert not Checkpoint(path, "another").begun


def test_a_broken_checkpoint_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "model.checkpoint"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FileFormatError, match=r"model\.checkpoint.*remove it"):
        Checkpoint(path, "one")


def test_training_ends_early_and_gives_back_the_best_weights(truth: Truth) -> None:
    # A rate this high ruins what the first epochs learned.
    settings = replace(SMALL, members=1, epochs=30, patience=3, learning_rate=0.3, hidden=8)
    reports: list[EpochReport] = []
    trained = train_network(truth, settings, reports.append)
    best = max(report.epoch for report in reports if report.best)
    assert reports[-1].epoch == best + settings.patience < settings.epochs
    assert len(reports) > settings.patience + 1
    scores = [report.regret_at_1 + report.regret_at_3 for report in reports]
    kept = validation_score(truth, settings, trained)
    assert kept == pytest.approx(np.log1p(reports[best - 1].regret_at_1), abs=1e-5)
    assert min(scores) == pytest.approx(scores[best - 1], abs=1e-3)


def validation_score(truth: Truth, settings: TrainingSettings, trained: TrainedNetwork) -> float:
    """Mean log regret with one choice, on the problems that the first member left out."""
    folds = split_by_twins(truth, settings.folds, settings.seed)
    left_out = truth.select(folds == 0)
    return float(np.log(regrets(left_out, timed_only(model_of(trained))).at(1)).mean())


def timed_only(model: NetworkModel) -> Ranker:
    """As training judges: among the choices that work."""

    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        order = model_ranker(model)(truth, measured)
        return order[~measured.failed[order]]

    return rank


def test_it_ranks_problems_that_it_never_saw_far_better_than_chance() -> None:
    everything = read_dataset(DATA)
    truth = Truth.of(everything.select(everything.columns.problem_id % 12 == 0))
    unseen = split_by_twins(truth, 4, seed=3) == 0
    trained = train_network(truth.select(~unseen), replace(SMALL, members=1, epochs=20))
    there = truth.select(unseen)
    model = evaluate(there, regrets(there, model_ranker(model_of(trained))))
    chance = evaluate(there, regrets(there, random_ranker(0)))
    assert model.at(3).efficiency > 93
    assert chance.at(3).efficiency < 70


def test_too_few_problems_are_refused(truth: Truth) -> None:
    with pytest.raises(UsageError, match="too few"):
        train_network(truth.select(np.arange(1)), SMALL)


def test_what_was_left_out_is_what_is_judged(truth: Truth, trained: TrainedNetwork) -> None:
    held_out = trained.held_out
    assert len(held_out.log_error) == len(held_out.sigma) == len(held_out.log_regret)
    rows = sum(int((~measured.failed).sum()) for measured in truth.problems)
    # Two members, each with another eighth of the problems.
    assert 0.1 * rows < len(held_out.log_error) < 0.45 * rows
    assert (held_out.sigma > 0).all()
