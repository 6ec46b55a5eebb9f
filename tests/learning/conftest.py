"""Measurements of an H200, a model of a part of them, and what it would read if one kind of kernel were slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diode.features.table import LIBRARY
from diode.model.fitting import FitSettings, fit, save_model
from diode.model.training import TrainingSettings
from diode.model.truth import Truth
from diode.model.wrapper import ModelWrapper
from diode.storage import read_dataset
from diode.types import Dataset

DATA = Path(__file__).parents[2] / "diode_datasets" / "h200_train_1.parquet"
SMALL = TrainingSettings(hidden=32, layers=1, members=2, epochs=8, batch_size=16)


def part_of(dataset: Dataset, part: int, of: int) -> Dataset:
    """A part of the problems, twins together."""
    groups = np.array([hash(problem.twin_group) % of for problem in dataset.problems])  # ints hash the same everywhere
    return dataset.select(groups[dataset.columns.problem_id] == part)


@pytest.fixture(scope="session")
def measured() -> Dataset:
    return read_dataset(DATA)


@pytest.fixture(scope="session")
def model(measured: Dataset, tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(fit(part_of(measured, 0, 10), FitSettings(network=SMALL, screen_hidden=0)), path)
    return ModelWrapper(path)


@pytest.fixture(scope="session")
def on_a_gpu(measured: Dataset) -> Callable[[int, float], Truth]:
    """`on_a_gpu(part, factor)`: a fifth of the problems, large enough to be timed well, the library `factor` slower."""

    def made(part: int, factor: float) -> Truth:
        truth = Truth.of(part_of(measured, part, 5))
        library = truth.table.kind == LIBRARY
        slower = [
            replace(one, time_us=one.time_us * np.where(library[one.choice_ids], factor, 1.0))
            for one in truth.problems
            if one.oracle_us >= 20.0
        ]
        return Truth(truth.choices, tuple(slower))

    return made
