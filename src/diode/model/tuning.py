"""A model that goes on learning: from the measurements of one machine, with some of what it knew before beside them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import torch

import diode
from diode.errors import UsageError
from diode.model.card import ModelCard, TrainingData
from diode.model.evaluation import regrets
from diode.model.examples import Examples, split_by_twins
from diode.model.fitting import FittedModel, describe, sigma_scale_of
from diode.model.networks import build_network, split_network
from diode.model.prediction import TimingModel
from diode.model.rankers import model_ranker
from diode.model.spec import NetworkSpec
from diode.model.training import EpochReport, HeldOut, TrainingSettings, train_on_examples
from diode.model.truth import Truth
from diode.model.weights import encode_tensors
from diode.model.wrapper import ModelWrapper, network_model
from diode.types import Dataset, MMShape

_JUDGED: Final = 4
"""One in so many of the new problems is kept out of the training, to judge it by."""
_KEPT_PER_NEW: Final = 4
_FEWEST_KEPT: Final = 64
"""Of what the model knew before so many problems are learned again, so that it does not forget."""
_FEWEST_TO_CALIBRATE: Final = 200


@dataclass(frozen=True)
class TuningSettings:
    epochs: int = 12
    learning_rate: float = 5e-4
    """A sixth of what a new model is trained with: what it knows is to be moved, not lost."""
    seed: int = 42
    device: str = "cpu"


class Judgement(msgspec.Struct, frozen=True):
    """Mean regret on new problems that were not trained on, of the choices that were measured."""

    problems: int
    regret_at_1: float
    regret_at_3: float


@dataclass(frozen=True, eq=False)
class Tuned:
    fitted: FittedModel
    trained_problems: int
    kept_problems: int
    before: Judgement
    after: Judgement


def tune(
    base: ModelWrapper,
    new: Dataset,
    kept: Dataset | None,
    settings: TuningSettings,
    version: str,
    data: Sequence[TrainingData] = (),
    report: Callable[[EpochReport], None] = lambda report: None,
) -> Tuned:
    """The screen stays as it is: it only has to keep the good, and what is good on one GPU of a kind is on another."""
    card = base.card
    parameters = base.parameters()
    assert card.network is not None
    truth = Truth.of(new)
    judged = split_by_twins(truth, _JUDGED, settings.seed) == 0
    if judged.all():
        raise UsageError(f"{len(truth)} new problems of one size: there is nothing to judge by; compile others too")
    judge = truth.select(judged)
    hidden = {measured.problem.twin_group for measured in judge.problems}
    training = _where(new, lambda problem: problem.twin_group not in hidden)
    again = None if kept is None else _some_of(kept, truth, settings.seed)
    both = Truth.of(training if again is None else Dataset.joined((training, again)))
    network = build_network(card.network)
    network.load_state_dict({name: torch.from_numpy(parameters[name].copy()) for name in card.network.shapes()})
    how = _training_settings(card.network, settings)
    folds = split_by_twins(both, how.folds, settings.seed)
    trained = train_on_examples(Examples.of(both), folds, how, report, initial=split_network(network))
    tensors = parameters | {name: value.numpy() for name, value in trained.network.state_dict().items()}
    scale = _sigma_scale(card, trained.held_out)
    before = _judged(base.model, judge)
    after = _judged(network_model(card, tensors, scale), judge)
    described = msgspec.structs.replace(
        _card_of_both(card, describe(new, truth), data),
        version=version,
        sigma_scale=scale,
        seed=settings.seed,
        settings=card.settings
        | {
            "tuned_from": f"{card}, {card.weights_sha256}",
            "tuned_epochs": settings.epochs,
            "tuned_learning_rate": settings.learning_rate,
        },
        metrics={
            "held_out_problems": before.problems,
            "held_out_regret_at_1_before": before.regret_at_1,
            "held_out_regret_at_1": after.regret_at_1,
            "held_out_regret_at_3_before": before.regret_at_3,
            "held_out_regret_at_3": after.regret_at_3,
        },
        diode=diode.__version__,
        trained=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )
    fitted = FittedModel(described, lambda suffix: encode_tensors(tensors, suffix), trained.epochs)
    return Tuned(fitted, len(truth) - len(judge), 0 if again is None else len(Truth.of(again)), before, after)


def _training_settings(spec: NetworkSpec, settings: TuningSettings) -> TrainingSettings:
    return TrainingSettings(
        type=spec.type,
        hidden=spec.hidden,
        layers=spec.layers,
        members=spec.members,
        epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        device=settings.device,
    )


def _some_of(kept: Dataset, new: Truth, seed: int) -> Dataset:
    """Drawn by lot, and no twin of a new problem: what is known of that one already must not judge it."""
    taken = {measured.problem.twin_group for measured in new.problems}
    numbers = [
        number
        for number, problem in enumerate(kept.problems)
        if isinstance(problem, MMShape) and problem.twin_group not in taken
    ]
    wanted = min(len(numbers), max(_FEWEST_KEPT, _KEPT_PER_NEW * len(new)))
    drawn = random.Random(seed).sample(numbers, wanted)
    return kept.select(np.isin(kept.columns.problem_id, drawn))


def _where(dataset: Dataset, holds: Callable[[MMShape], bool]) -> Dataset:
    picked = np.array([isinstance(problem, MMShape) and holds(problem) for problem in dataset.problems], dtype=np.bool_)
    return dataset.select(picked[dataset.columns.problem_id])


def _sigma_scale(card: ModelCard, held_out: HeldOut) -> float:
    return sigma_scale_of(held_out) if len(held_out.log_error) >= _FEWEST_TO_CALIBRATE else card.sigma_scale


def _judged(model: TimingModel, truth: Truth) -> Judgement:
    found = regrets(truth, model_ranker(model), (1, 3))
    at_1, at_3 = (float(np.exp(np.log(found.at(k)).mean()) - 1.0) for k in (1, 3))
    return Judgement(len(truth), at_1, at_3)


def _card_of_both(card: ModelCard, new: ModelCard, data: Sequence[TrainingData]) -> ModelCard:
    """What the model knows: what it knew, and what it has learned."""
    known = ("ops", "precisions", "templates", "torch", "triton", "template_hashes")
    together = {name: tuple(sorted({*getattr(card, name), *getattr(new, name)})) for name in known}
    names = {device.name for device in card.hardware}
    hardware = (*card.hardware, *(device for device in new.hardware if device.name not in names))
    sources = tuple({source.sha256: source for source in (*card.data, *data)}.values())
    return msgspec.structs.replace(card, hardware=hardware, data=sources, **together)
