"""Trains an ensemble of networks on lists of choices. Each member leaves out another part of the problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diode.errors import UsageError
from diode.model.checkpoint import Checkpoint
from diode.model.examples import Examples, split_by_twins
from diode.model.losses import LossWeights
from diode.model.networks import TimingNetwork, stack_networks
from diode.model.truth import Truth


@dataclass(frozen=True)
class TrainingSettings:
    """The defaults make the best model that three minutes of two CPU cores can."""

    type: Literal["base", "deep"] = "deep"
    hidden: int = 96
    layers: int = 2
    members: int = 3
    epochs: int = 40
    batch_size: int = 32
    """Problems in one step; each brings a list of its choices."""
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    patience: int = 15
    """Epochs without a better validation before a member's training ends."""
    choices_per_problem: int = 64
    always: int = 8
    """So many of a problem's fastest choices are in its list in every epoch."""
    folds: int = 8
    """One of so many parts of the problems is left out for validation, another one by each member."""
    seed: int = 42
    device: str = "cpu"
    loss: LossWeights = field(default_factory=LossWeights)


@dataclass(frozen=True)
class EpochReport:
    """What a progress display shows after each epoch."""

    member: int
    members: int
    epoch: int
    epochs: int
    training_loss: float
    validation_loss: float
    regret_at_1: float
    """Geometric mean over the validation problems, of the choices that were measured."""
    regret_at_3: float
    best: bool
    learning_rate: float


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of problems by a member that left them out: the ground of the calibration."""

    log_error: NDArray[np.float32]
    sigma: NDArray[np.float32]
    log_regret: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    network: TimingNetwork
    held_out: HeldOut
    epochs: tuple[EpochReport, ...]


def train_network(
    truth: Truth,
    settings: TrainingSettings,
    report: Callable[[EpochReport], None] = lambda report: None,
    checkpoint: Checkpoint | None = None,
) -> TrainedNetwork:
    """Deterministic for a seed on a CPU. With a checkpoint, an interrupted training goes on where it was."""
    folds = split_by_twins(truth, settings.folds, settings.seed)
    return train_on_examples(Examples.of(truth), folds, settings, report, checkpoint)


def train_on_examples(
    examples: Examples,
    folds: NDArray[np.intp],
    settings: TrainingSettings,
    report: Callable[[EpochReport], None] = lambda report: None,
    checkpoint: Checkpoint | None = None,
    initial: Sequence[TimingNetwork] = (),
) -> TrainedNetwork:
    """`folds` has an entry per problem; the problems of one fold are left out together.

    With `initial` networks, one a member, training goes on from these, and gives them back where nothing is better.
    """
    from diode.model.member import MemberTrainer, TrainingRows

    present = sorted(set(folds.tolist()))
    if len(present) < 2:
        raise UsageError(
            f"{len(folds)} measured GEMM problems are too few to train on: at least two of different sizes are needed"
        )
    rows = TrainingRows(examples, settings.device)
    networks, held_out, reports = [], [], []
    for number in range(settings.members):
        left_out = folds == present[number % len(present)]
        member = MemberTrainer(rows, left_out, number, settings, initial[number] if initial else None)
        for epoch_report in member.run(checkpoint):
            reports.append(epoch_report)
            report(epoch_report)
        networks.append(member.network)
        held_out.append(member.judge_held_out())
    together = HeldOut(
        np.concatenate([part.log_error for part in held_out]),
        np.concatenate([part.sigma for part in held_out]),
        np.concatenate([part.log_regret for part in held_out]),
    )
    return TrainedNetwork(stack_networks(networks).cpu(), together, tuple(reports))
