"""The contract of a trained model on the disk: weights, and the card beside them."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from diode.errors import DiodeError
from diode.features import SCHEMA_VERSION
from diode.model import ModelCard, ModelRegistry, ModelWrapper, TimingModel
from diode.model.card import card_path, read_card, write_card
from diode.testing.conformance import require
from diode.testing.timing_models import TimingModelConformance
from diode.types import MMShape


class ArtifactConformance(TimingModelConformance):
    """Derive from it, and name the file of weights; the model in it is held to the contract of models, too."""

    @abstractmethod
    def artifact(self) -> Path:
        """The file of weights. It is only read."""

    def load(self, path: Path) -> ModelWrapper:
        """For those who load their models in a way of their own."""
        return ModelWrapper(path)

    def make_model(self) -> TimingModel:
        return self.load(self.artifact()).model

    def problems(self) -> Sequence[MMShape]:
        """Those that the card says the model knows."""
        card = read_card(card_path(self.artifact()))
        known = [problem for problem in super().problems() if _knows(card, problem)]
        named = ", ".join((*card.ops, *card.precisions))
        require(known, f"it can be asked about none of the problems here: the card names {named}")
        return known

    def test_the_card_says_what_the_model_is_for(self) -> None:
        card = self.load(self.artifact()).card
        for name in ("name", "version", "purpose", "hardware", "ops", "precisions", "templates"):
            require(getattr(card, name), f"the card leaves {name} empty: nobody can tell whom the model serves")

    def test_it_is_found_for_the_hardware_that_it_was_trained_on(self) -> None:
        with self._copied() as copy:
            registry = ModelRegistry()
            registry.add(copy.parent)
            require(not registry.problems, f"it cannot be read: {'; '.join(registry.problems.values())}")
            card = registry.pointers[0].card
            found = registry.find(purpose=card.purpose, hardware=card.hardware[0], op=card.ops[0])
            require(found is not None and found.same_hardware, f"it is not found for {card.hardware[0].name}")

    def test_it_predicts_the_same_wherever_it_lies(self) -> None:
        here = self.load(self.artifact())
        with self._copied() as copy:
            there = self.load(copy)
            require(here.digest == there.digest, "a copy has another digest")
            for problem, features in self._features():
                told, again = here.model.predict(features), there.model.predict(features)
                require(np.array_equal(told.log_ratio, again.log_ratio), f"{problem}: a copy predicts something else")

    def test_other_columns_are_refused(self) -> None:
        def swapped(card: ModelCard) -> ModelCard:
            return msgspec.structs.replace(card, columns=(*card.columns[1:], card.columns[0]))

        self._require_refusal(swapped, "columns in another order than diode computes them")

    def test_another_version_of_the_features_is_refused(self) -> None:
        def newer(card: ModelCard) -> ModelCard:
            return msgspec.structs.replace(card, feature_schema=SCHEMA_VERSION + 1)

        self._require_refusal(newer, "features of another version")

    def test_weights_of_another_model_are_refused(self) -> None:
        def another(card: ModelCard) -> ModelCard:
            return msgspec.structs.replace(card, weights_sha256="0" * 64)

        self._require_refusal(another, "weights that are not the ones of the card")

    def _require_refusal(self, change: Callable[[ModelCard], ModelCard], what: str) -> None:
        with self._copied() as copy:
            write_card(change(read_card(card_path(copy))), card_path(copy))
            try:
                wrapper = self.load(copy)
                _ = wrapper.card, wrapper.model
            except DiodeError:
                return
            raise AssertionError(f"{what} are taken; they must be refused by a DiodeError")

    @contextmanager
    def _copied(self) -> Iterator[Path]:
        weights = self.artifact()
        with tempfile.TemporaryDirectory() as folder:
            for file in (weights, card_path(weights)):
                shutil.copy(file, folder)
            yield Path(folder) / weights.name


def _knows(card: ModelCard, problem: MMShape) -> bool:
    precision = "tf32" if problem.allow_tf32 else problem.a.dtype
    return problem.op in card.ops and precision in card.precisions
