"""Small pieces of the committed H200 data, and a small model that the command made of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.cli.running import Done, diode_here

from diode.storage import filter_dataset, read_dataset, write_dataset
from diode.types import Dataset, MMShape, Problem

DATA = Path(__file__).parents[2] / "diode_datasets" / "h200_train_1.parquet"
TINY = ("--num-epochs", 4, "--hidden-size", 8, "--layers", 1, "--members", 2, "--batch-size", 8)
"""What makes a training take a moment."""


@pytest.fixture(scope="session")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with addmm in `training.parquet` and `validation.msgpack`; no problem is in both."""
    folder = tmp_path_factory.mktemp("h200")
    measured = read_dataset(DATA)
    numbers = {problem: number for number, problem in enumerate(measured.problems)}

    def part(remainder: int) -> Dataset:
        def wanted(problem: Problem) -> bool:
            return isinstance(problem, MMShape) and numbers[problem] % 97 == remainder

        return filter_dataset(measured, problem=wanted)

    write_dataset(part(0), folder / "training.parquet")
    write_dataset(part(1), folder / "validation.msgpack")
    return folder


@pytest.fixture(scope="session")
def mixed(h200: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three formats: `a.parquet` has addmm, `b.json` mm, and `c.msgpack` addmm of another GPU."""
    folder = tmp_path_factory.mktemp("mixed")
    measured = list(read_dataset(h200 / "training.parquet"))
    as_mm = [
        msgspec.structs.replace(row, problem=msgspec.structs.replace(row.problem, op="mm", bias=None))
        for row in measured
        if isinstance(row.problem, MMShape)
    ]
    h100 = msgspec.structs.replace(measured[0].environment.hardware, name="NVIDIA H100")
    elsewhere = [
        msgspec.structs.replace(row, environment=msgspec.structs.replace(row.environment, hardware=h100))
        for row in measured
    ]
    write_dataset(Dataset.of(measured), folder / "a.parquet")
    write_dataset(Dataset.of(as_mm), folder / "b.json")
    write_dataset(Dataset.of(elsewhere), folder / "c.msgpack")
    return folder


@pytest.fixture(scope="session")
def training(h200: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A model, and what the command said while it made it."""
    model = tmp_path_factory.mktemp("model") / "small.safetensors"
    done = diode_here(h200, "train", "--dataset", "training.parquet", "--model", model, *TINY)
    assert done.code == 0, done.err
    return model, done


@pytest.fixture(scope="session")
def model(training: tuple[Path, Done]) -> Path:
    return training[0]
