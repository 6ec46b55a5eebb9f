"""What a timing model says of the choices of one problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

LIKELY_ILLEGAL: Final = 0.5


@dataclass(frozen=True, eq=False)
class Prediction:
    """One entry per choice."""

    log_ratio: NDArray[np.float32]
    """Natural logarithm of the time as a multiple of `diode.features.least_us`."""
    sigma: NDArray[np.float32]
    """Standard deviation of the error of `log_ratio`, as calibrated on problems that were not trained on."""
    failure: NDArray[np.float32]
    """Probability that the choice gives no result: out of resources, or wrong."""

    def order(self) -> NDArray[np.intp]:
        """Places from best to worst: the likely legal before the likely illegal, ties as they were given."""
        return np.lexsort((self.log_ratio, self.failure > LIKELY_ILLEGAL))

    def time_us(self, least_us: float) -> NDArray[np.float64]:
        times: NDArray[np.float64] = np.exp(self.log_ratio.astype(np.float64)) * least_us
        return times


class TimingModel(Protocol):
    """Predicts from features, columns as in `diode.features.COLUMNS`."""

    def predict(self, features: NDArray[np.float32]) -> Prediction:
        """Rows do not influence one another."""

    def predict_choices(self, features: NDArray[np.float32]) -> Prediction:
        """Of the choices of one problem: those far behind may be predicted roughly, never ahead of the others."""


def prediction_of(outputs: NDArray[np.float32], sigma_scale: float) -> Prediction:
    """What the members of a network say together, from `[members, rows, outputs]`."""
    ratios, log_sigmas, logits = outputs[..., 0], outputs[..., 1], outputs[..., 2]
    variance = np.exp(2.0 * np.clip(log_sigmas, -8.0, 4.0)).mean(0) + ratios.var(0)
    failure = 1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0)))
    return Prediction(ratios.mean(0), np.sqrt(variance) * np.float32(sigma_scale), failure.mean(0))
