"""A browser, and one report of a small model on a slice of the committed H200 data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.model.conftest import DATA, SMALL
from tests.report.browser import Page, opened_browser
from tests.report.debian import program

from diode.model.fitting import FitSettings, fit, save_model
from diode.model.truth import Truth
from diode.model.wrapper import ModelWrapper
from diode.report.charts import draw_charts
from diode.report.curve import LearningCurve, LearningPoint
from diode.report.findings import Findings, Inspection, JudgedFile, gather
from diode.report.pictures import Picture
from diode.storage import read_dataset
from diode.types import Dataset

CURVE = LearningCurve(
    points=tuple(
        LearningPoint(10 * share, 700 * share, 0.5 * share, 70.0 + 6 * share, 90.0 + 2 * share) for share in (1, 2, 4)
    ),
    held_out=12,
)


@pytest.fixture(scope="session")
def measured() -> Dataset:
    """Every fortieth problem of the H200's training data, and the one after it."""
    everything = read_dataset(DATA)
    return everything.select(np.isin(everything.columns.problem_id % 40, (0, 1)))


@pytest.fixture(scope="session")
def halves(measured: Dataset) -> tuple[Dataset, Dataset]:
    """To train on, and to judge by; no problem is in both."""
    first = measured.columns.problem_id % 2 == 0
    return measured.select(first), measured.select(~first)


@pytest.fixture(scope="session")
def model(halves: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> ModelWrapper:
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(fit(halves[0], FitSettings(network=SMALL, screen_hidden=8, name="<small> & made-up")), path)
    return ModelWrapper(path)


@pytest.fixture(scope="session")
def found(model: ModelWrapper, halves: tuple[Dataset, Dataset]) -> Findings:
    training, judged = halves
    file = JudgedFile.of("<judged>.parquet", "0" * 64, judged)
    return gather(
        model.model,
        model.card,
        Truth.of(judged),
        Inspection(top=4),
        files=[file],
        training=Truth.of(training),
        curve=CURVE,
    )


@pytest.fixture(scope="session")
def pictures(found: Findings) -> list[Picture]:
    return draw_charts(found)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened_browser(program("chromium"), tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page
