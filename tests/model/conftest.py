"""A slice of the committed H200 data, and a small model trained on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diode.model.fitting import FitSettings, fit, save_model
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.storage import read_dataset
from diode.types import Dataset, MMShape

DATA = Path(__file__).parents[2] / "diode_datasets" / "h200_train_1.parquet"
SMALL = TrainingSettings(hidden=16, layers=1, members=2, epochs=6, batch_size=8)


@pytest.fixture(scope="session")
def measured() -> Dataset:
    """Every fortieth problem of the H200's training data."""
    everything = read_dataset(DATA)
    return everything.select(everything.columns.problem_id % 40 == 0)


@pytest.fixture(scope="session")
def truth(measured: Dataset) -> Truth:
    return Truth.of(measured)


@pytest.fixture(scope="session")
def model_path(measured: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(fit(measured, FitSettings(network=SMALL, screen_hidden=8)), path)
    return path


@pytest.fixture
def problem() -> MMShape:
    return MMShape.of("addmm", 512, 1024, 768, layout="NT")


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)
