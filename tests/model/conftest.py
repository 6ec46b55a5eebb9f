"""A slice of the committed H200 data, and a small model trained on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diode.features import COLUMNS, SCHEMA_VERSION
from diode.model.card import ModelCard
from diode.model.fitting import FitSettings, FittedModel, fit, save_model
from diode.model.networks import build_network
from diode.model.spec import NetworkSpec
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.model.weights import encode_tensors
from diode.model.wrapper import SCREEN_PREFIX
from diode.storage import read_dataset
from diode.types import Dataset, MMShape
from diode.types.known_hardware import H200

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


def untrained(
    spec: NetworkSpec | None = None, screen: NetworkSpec | None = None, seed: int = 0, **described: Any
) -> FittedModel:
    """A network with random weights and a card that says it is for the H200."""
    torch.manual_seed(seed)
    spec = spec or NetworkSpec("deep", len(COLUMNS), 16, 2, 3)
    networks = {"": spec} | ({} if screen is None else {SCREEN_PREFIX: screen})
    parameters = {
        prefix + name: value.numpy()
        for prefix, each in networks.items()
        for name, value in build_network(each).state_dict().items()
    }
    usual: dict[str, Any] = {
        "name": "untrained",
        "version": "1",
        "type": spec.type,
        "feature_schema": SCHEMA_VERSION,
        "columns": COLUMNS,
        "sigma_scale": 2.0,
        "weights_sha256": "0" * 64,
        "hardware": (H200,),
        "ops": ("addmm", "mm"),
        "precisions": ("bfloat16",),
        "templates": ("triton::mm",),
        "network": spec,
        "screen": screen,
    }
    return FittedModel(ModelCard(**(usual | described)), lambda suffix: encode_tensors(parameters, suffix))
