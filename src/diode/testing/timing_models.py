"""The contract of `diode.model.TimingModel`: what ranking, policies and caches rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable, feature_matrix
from diode.model import Prediction, TimingModel
from diode.testing.conformance import Conformance, require
from diode.testing.examples import PROBLEMS, choices_for
from diode.types import Choice, Hardware, MMShape
from diode.types.known_hardware import H200

Features = NDArray[np.float32]

_TOLERANCE: Final = 1e-3
"""Of a logarithm: in another place of a matrix, sums are rounded differently."""
_THREADS: Final = 4
_FRONT: Final = 8
"""So many of the first choices must be the same however they are listed."""


class TimingModelConformance(Conformance, ABC):
    """Derive from it, and make the model that is to be checked. What it is asked about can be changed."""

    hardware: Hardware = H200

    @abstractmethod
    def make_model(self) -> TimingModel:
        """The model. It is asked for by each check, and may be the same one."""

    def problems(self) -> Sequence[MMShape]:
        return PROBLEMS

    def choices(self, problem: MMShape) -> Sequence[Choice]:
        return choices_for(problem)

    def test_there_is_one_prediction_for_each_row(self) -> None:
        for problem, features, told in self._predictions():
            for name in ("log_ratio", "sigma", "failure"):
                shape = np.shape(getattr(told, name))
                require(shape == (len(features),), f"{problem}: {name} is {shape} for {len(features)} rows")

    def test_predictions_are_finite(self) -> None:
        for problem, _, told in self._predictions():
            for name in ("log_ratio", "sigma", "failure"):
                wrong = int((~np.isfinite(getattr(told, name))).sum())
                require(not wrong, f"{problem}: {name} is no number for {wrong} choices")

    def test_doubt_is_not_negative(self) -> None:
        for problem, _, told in self._predictions():
            require((told.sigma >= 0).all(), f"{problem}: sigma is as low as {told.sigma.min()}")

    def test_failure_is_a_probability(self) -> None:
        for problem, _, told in self._predictions():
            low, high = told.failure.min(), told.failure.max()
            require(low >= 0 and high <= 1, f"{problem}: failure goes from {low} to {high}, not within 0 and 1")

    def test_rows_do_not_influence_one_another(self) -> None:
        model = self.make_model()
        for problem, features in self._features():
            together = model.predict(features)
            for row in range(0, len(features), max(1, len(features) // 7)):
                alone = model.predict(features[row : row + 1].copy())
                for name in ("log_ratio", "sigma", "failure"):
                    one, other = getattr(together, name)[row], getattr(alone, name)[0]
                    require(
                        abs(one - other) <= _TOLERANCE * max(1.0, abs(one)),
                        f"{problem}: {name} of row {row} is {one} among others and {other} alone",
                    )

    def test_predictions_are_the_same_each_time(self) -> None:
        first, second = self.make_model(), self.make_model()
        for problem, features in self._features():
            for method in ("predict", "predict_choices"):
                told = [getattr(model, method)(features) for model in (first, first, second)]
                require(_equal(*told), f"{problem}: {method} says something else each time")

    def test_predictions_are_the_same_in_every_thread(self) -> None:
        model = self.make_model()
        asked = list(self._features())
        expected = [model.predict_choices(features) for _, features in asked]
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in range(_THREADS):
                told = pool.map(model.predict_choices, (features for _, features in asked))
                for (problem, _), one, other in zip(asked, expected, told, strict=True):
                    require(_equal(one, other), f"{problem}: something else is said where several threads ask at once")

    def test_features_are_left_as_they_are(self) -> None:
        model = self.make_model()
        for problem, features in self._features():
            before = features.copy()
            model.predict(features)
            model.predict_choices(features)
            require(np.array_equal(before, features), f"{problem}: the features were changed")

    def test_the_order_does_not_depend_on_how_choices_are_listed(self) -> None:
        model = self.make_model()
        draw = np.random.default_rng(0)
        for problem, features in self._features():
            listed = _front(model.predict_choices(features))
            shuffled = _front(model.predict_choices(features[draw.permutation(len(features))]))
            require(
                np.allclose(listed, shuffled, atol=_TOLERANCE),
                f"{problem}: the first choices are {listed} in one order and {shuffled} in another",
            )

    def test_what_is_put_first_was_looked_at_closely(self) -> None:
        """What `predict_choices` predicts roughly must not overtake what it does not."""
        model = self.make_model()
        for problem, features in self._features():
            told = model.predict_choices(features)
            first = told.order()[0]
            closely = model.predict(features).log_ratio[first]
            require(
                abs(told.log_ratio[first] - closely) <= _TOLERANCE * max(1.0, abs(closely)),
                f"{problem}: the first choice is predicted {told.log_ratio[first]}, but {closely} by itself",
            )

    def _features(self) -> Iterator[tuple[MMShape, Features]]:
        for problem in self.problems():
            yield problem, feature_matrix(self.hardware, problem, ChoiceTable.of(self.choices(problem)))

    def _predictions(self) -> Iterator[tuple[MMShape, Features, Prediction]]:
        model = self.make_model()
        for problem, features in self._features():
            yield problem, features, model.predict(features)
            yield problem, features, model.predict_choices(features)


def _equal(first: Prediction, *others: Prediction) -> bool:
    names = ("log_ratio", "sigma", "failure")
    return all(np.array_equal(getattr(first, name), getattr(other, name)) for other in others for name in names)


def _front(told: Prediction) -> NDArray[np.float32]:
    return told.log_ratio[told.order()[:_FRONT]]
