"""The training of one network: epochs, validation, the best weights restored at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from diode.features import COLUMNS
from diode.model.checkpoint import Checkpoint, MemberState
from diode.model.examples import Examples, lists_of_choices
from diode.model.losses import Batch, loss_of
from diode.model.networks import TimingNetwork, build_network
from diode.model.spec import NetworkSpec
from diode.model.training import EpochReport, HeldOut, TrainingSettings

_WARM_UP = 0.1
_ROWS_AT_ONCE = 65536
_LARGEST_GRADIENT = 5.0


class TrainingRows:
    """The examples as tensors on the device that trains, shared by all members."""

    def __init__(self, examples: Examples, device: str) -> None:
        self.examples = examples
        self.device = torch.device(device)
        # A row of padding in front: row -1 of a list becomes row 0 here.
        self.features = torch.from_numpy(np.pad(examples.features, ((1, 0), (0, 0)))).to(self.device)
        self._log_ratio = self._padded(np.nan_to_num(examples.log_ratio))
        self._log_regret = self._padded(np.nan_to_num(examples.log_regret))
        self._failed = self._padded(examples.failed)

    def batch(self, lines: NDArray[np.intp]) -> Batch:
        rows = torch.from_numpy(lines + 1).to(self.device)
        return Batch(self.features[rows], self._log_ratio[rows], self._log_regret[rows], self._failed[rows], rows > 0)

    @property
    def timed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and targets of all rows that are no failures."""
        picked = torch.from_numpy(np.flatnonzero(~self.examples.failed) + 1).to(self.device)
        return self.features[picked], self._log_ratio[picked]

    def rows_of(self, problems: NDArray[np.intp]) -> NDArray[np.intp]:
        bounds = self.examples.bounds
        return np.concatenate([np.arange(bounds[number], bounds[number + 1]) for number in problems])

    def _padded(self, column: NDArray[np.float32] | NDArray[np.bool_]) -> torch.Tensor:
        return torch.from_numpy(np.pad(column, (1, 0))).to(self.device)


class MemberTrainer:
    """Trains one member on all problems but those that it leaves out."""

    def __init__(
        self,
        rows: TrainingRows,
        left_out: NDArray[np.bool_],
        number: int,
        settings: TrainingSettings,
        initial: TimingNetwork | None = None,
    ) -> None:
        self._rows = rows
        self._number = number
        self._settings = settings
        self._training = np.flatnonzero(~left_out)
        self._validation = np.flatnonzero(left_out)
        torch.manual_seed(settings.seed + 1000 * number)
        spec = NetworkSpec(settings.type, len(COLUMNS), settings.hidden, settings.layers)
        self.network = build_network(spec).to(rows.device)
        if initial is None:
            self.network.normalise_by(*rows.timed)
        else:
            self.network.load_state_dict(initial.state_dict())
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._best: dict[str, torch.Tensor] = {}
        self._best_score = math.inf
        self._since_best = 0
        if initial is not None:
            self._keep_if_best(sum(self._validate()[1:]))

    def run(self, checkpoint: Checkpoint | None) -> Iterator[EpochReport]:
        settings = self._settings
        for epoch in range(self._restored_epoch(checkpoint), settings.epochs):
            if self._since_best >= settings.patience:
                break
            training_loss = self._train_epoch(epoch)
            validation_loss, at_1, at_3 = self._validate()
            better = self._keep_if_best(at_1 + at_3)
            if checkpoint is not None:
                checkpoint.save(self._number, self._state(epoch + 1))
            yield EpochReport(
                member=self._number + 1,
                members=settings.members,
                epoch=epoch + 1,
                epochs=settings.epochs,
                training_loss=training_loss,
                validation_loss=validation_loss,
                regret_at_1=math.expm1(at_1),
                regret_at_3=math.expm1(at_3),
                best=better,
                learning_rate=self._optimizer.param_groups[0]["lr"],
            )
        self.network.load_state_dict(self._best)
        self.network.eval()

    def judge_held_out(self) -> HeldOut:
        examples = self._rows.examples
        rows = self._rows.rows_of(self._validation)
        rows = rows[~examples.failed[rows]]
        outputs = self._outputs(rows)
        return HeldOut(outputs[:, 0] - examples.log_ratio[rows], np.exp(outputs[:, 1]), examples.log_regret[rows])

    def _train_epoch(self, epoch: int) -> float:
        settings = self._settings
        # Each epoch draws from a seed of its own, so that a training that is taken up again draws the same.
        draw = np.random.default_rng((settings.seed, self._number, epoch))
        problems = draw.permutation(self._training)
        starts = range(0, len(problems), settings.batch_size)
        total = 0.0
        self.network.train()
        for step, start in enumerate(starts):
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate((epoch + step / len(starts)) / settings.epochs)
            batch = self._rows.batch(self._lines(problems[start : start + settings.batch_size], draw))
            loss = loss_of(self._forward(batch.features), batch, settings.loss)
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), _LARGEST_GRADIENT)
            self._optimizer.step()
            total += float(loss.detach())
        return total / len(starts)

    def _rate(self, done: float) -> float:
        """Up in a line, down as half a cosine."""
        highest = self._settings.learning_rate
        if done < _WARM_UP:
            return highest * (0.05 + 0.95 * done / _WARM_UP)
        return highest * 0.5 * (1.0 + math.cos(math.pi * (done - _WARM_UP) / (1.0 - _WARM_UP)))

    def _lines(self, problems: NDArray[np.intp], draw: np.random.Generator) -> NDArray[np.intp]:
        settings = self._settings
        return lists_of_choices(
            self._rows.examples, problems.tolist(), settings.choices_per_problem, settings.always, draw
        )

    def _forward(self, features: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.network(features.flatten(0, 1))[0]
        return rows.reshape(*features.shape[:2], -1)

    def _validate(self) -> tuple[float, float, float]:
        """The loss, and the mean log regret with one and with three choices."""
        examples = self._rows.examples
        draw = np.random.default_rng((self._settings.seed, self._number))
        self.network.eval()
        with torch.no_grad():
            batch = self._rows.batch(self._lines(self._validation, draw))
            loss = float(loss_of(self._forward(batch.features), batch, self._settings.loss))
        rows = self._rows.rows_of(self._validation)
        predicted = np.where(examples.failed[rows], np.inf, self._outputs(rows)[:, 0])
        regret = examples.log_regret[rows]
        counts = np.diff(examples.bounds)[self._validation]
        at_1, at_3 = 0.0, 0.0
        for part in np.split(np.arange(len(rows)), np.cumsum(counts)[:-1]):
            ranked = regret[part][np.argsort(predicted[part], kind="stable")]
            at_1 += float(ranked[0])
            at_3 += float(np.nanmin(ranked[:3]))
        return loss, at_1 / len(counts), at_3 / len(counts)

    def _keep_if_best(self, score: float) -> bool:
        if score >= self._best_score:
            self._since_best += 1
            return False
        self._best_score, self._since_best = score, 0
        self._best = {name: value.clone() for name, value in self.network.state_dict().items()}
        return True

    def _outputs(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        parts = []
        with torch.no_grad():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                picked = torch.from_numpy(rows[start : start + _ROWS_AT_ONCE] + 1).to(self._rows.device)
                parts.append(self.network(self._rows.features[picked])[0].cpu().numpy())
        return np.concatenate(parts)

    def _state(self, epoch: int) -> MemberState:
        return MemberState(
            epoch=epoch,
            network=dict(self.network.state_dict()),
            optimizer=self._optimizer.state_dict(),
            best=self._best,
            best_score=self._best_score,
            since_best=self._since_best,
        )

    def _restored_epoch(self, checkpoint: Checkpoint | None) -> int:
        saved = None if checkpoint is None else checkpoint.load(self._number)
        if saved is None:
            return 0
        self.network.load_state_dict(saved.network)
        self._optimizer.load_state_dict(saved.optimizer)
        self._best, self._best_score, self._since_best = saved.best, saved.best_score, saved.since_best
        return saved.epoch
