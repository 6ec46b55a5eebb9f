"""The model type `gbdt`: gradient-boosted trees by LightGBM, an optional dependency, in LightGBM's own text format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from diode.errors import FileFormatError, MissingDependencyError
from diode.features import COLUMNS
from diode.model.examples import Examples, split_by_twins
from diode.model.prediction import Prediction
from diode.model.training import HeldOut
from diode.model.truth import Truth

_NEAR: Final = 0.5
_DOUBT: Final = 0.1
_FOLDS: Final = 8


class BoostedTrees:
    """Trees for the time; they give no doubt of their own, so the calibration's stands for all choices."""

    def __init__(self, booster: Any, sigma_scale: float) -> None:
        self._booster = booster
        self._sigma_scale = sigma_scale

    @classmethod
    def decode(cls, path: Path, content: bytes, sigma_scale: float) -> BoostedTrees:
        lightgbm = _lightgbm()
        try:
            booster = lightgbm.Booster(model_str=content.decode())
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: not a model in LightGBM's text format ({error})") from error
        if booster.feature_name() != list(COLUMNS):
            raise FileFormatError(f"{path}: its trees were grown on other features than this diode computes")
        return cls(booster, sigma_scale)

    def encode(self) -> bytes:
        text: str = self._booster.model_to_string()
        return text.encode()

    def predict(self, features: NDArray[np.float32]) -> Prediction:
        log_ratio = self._booster.predict(features, num_threads=1).astype(np.float32)
        sigma = np.full(len(features), _DOUBT * self._sigma_scale, np.float32)
        return Prediction(log_ratio, sigma, np.zeros(len(features), np.float32))

    def predict_choices(self, features: NDArray[np.float32]) -> Prediction:
        return self.predict(features)

    def importance(self) -> dict[str, float]:
        gains = self._booster.feature_importance("gain")
        return dict(zip(COLUMNS, (gains / max(gains.sum(), 1e-9)).tolist(), strict=True))


@dataclass(frozen=True)
class TreeSettings:
    trees: int = 400
    learning_rate: float = 0.06
    leaves: int = 127
    seed: int = 42


def train_trees(truth: Truth, settings: TreeSettings) -> tuple[BoostedTrees, HeldOut]:
    """Trees grown on all problems; the doubt comes from trees that left out an eighth of them."""
    examples = Examples.of(truth)
    folds = split_by_twins(truth, _FOLDS, settings.seed)
    row_folds = np.repeat(folds, np.diff(examples.bounds))
    timed = ~examples.failed
    judge = _grow(examples, timed & (row_folds != 0), settings)
    rows = np.flatnonzero(timed & (row_folds == 0))
    error = judge.predict(examples.features[rows]).astype(np.float32) - examples.log_ratio[rows]
    held_out = HeldOut(error, np.full(len(rows), _DOUBT, np.float32), examples.log_regret[rows])
    return BoostedTrees(_grow(examples, timed, settings), 1.0), held_out


def _grow(examples: Examples, rows: NDArray[np.bool_], settings: TreeSettings) -> Any:
    lightgbm = _lightgbm()
    weight = 0.1 + np.exp(-examples.log_regret[rows] / _NEAR)
    data = lightgbm.Dataset(
        examples.features[rows], examples.log_ratio[rows], weight=weight, feature_name=list(COLUMNS)
    )
    parameters = {
        "objective": "regression",
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": 20,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": settings.seed,
        "verbose": -1,
    }
    return lightgbm.train(parameters, data, settings.trees)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingDependencyError("LightGBM", "the model type gbdt", "gbdt") from error
    return lightgbm
