"""Models of every type, trained for a moment on times that were made up."""

from __future__ import annotations

import pytest

from diode.collection.samplers import LogNormalSampler
from diode.features import least_us
from diode.model.fitting import FitSettings, fit, save_model
from diode.model.gbdt import TreeSettings
from diode.model.training import TrainingSettings
from diode.testing.examples import choices_for
from diode.types import Dataset, Environment, Failure, Measurement, Timing, TimingMethod
from diode.types.known_hardware import H200

FILES = {"base": "base.safetensors", "deep": "deep.pt", "gbdt": "gbdt.txt"}


def made_up() -> Dataset:
    environment, method = Environment(H200, torch="2.13.0", triton="3.9.0"), TimingMethod("diode-sweep", "median")
    rows = []
    for problem in LogNormalSampler(3).sample(24):
        for place, choice in enumerate(choices_for(problem)[::17]):
            timing = Timing(least_us(H200, problem) * (1.5 + 0.1 * place)) if place % 5 else None
            failure = None if timing else Failure("shared_memory")
            rows.append(Measurement(problem, choice, environment, method, timing, failure))
    return Dataset.of(rows)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A function from a type of model to the weights of one."""
    folder = tmp_path_factory.mktemp("trained")
    quick = TrainingSettings(hidden=16, layers=2, members=2, epochs=1)

    def weights_of(type):
        path = folder / FILES[type]
        if not path.exists():
            settings = FitSettings(type, quick, TreeSettings(trees=5, leaves=7), screen_hidden=8)
            save_model(fit(made_up(), settings), path)
        return path

    return weights_of
