"""The core imports and works where triton, Inductor or CUDA is missing: in processes that lack it for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from diode.collection.networks import NetworkSampler
from diode.collection.samplers import LogNormalSampler
from diode.model import ModelWrapper
from diode.model.fitting import FitSettings, fit, save_model
from diode.model.training import TrainingSettings
from diode.storage import read_dataset, write_dataset
from diode.types import AtenChoice, Dataset, Environment, Measurement, Timing, TimingMethod, TritonGEMMConfig
from diode.types.known_hardware import H200

NEEDED_BY = {
    "triton": {
        "diode.collection.gpu.launcher": "loads compiled kernels with Triton's driver",
        "diode.collection.gpu.worker": "launches them",
    },
    "torch._inductor": {
        "diode.collection.cpu.worker": "has Inductor compile and time its choices for this CPU",
        "diode.integration": "is the room that talks to Inductor; a name with all that is in it",
    },
    "CUDA": {},
}
"""What cannot be imported where something is missing, with the reason. Every other module can, everywhere."""

NEEDS_NO_INDUCTOR = ("diode.integration.device",)
"""Of the rooms named above: what the core takes from them."""

PROGRAM = """
import importlib, json, pkgutil, sys
from pathlib import Path

missing, folder = sys.argv[1], Path(sys.argv[2])

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name == missing or name.startswith(missing + "."):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Nowhere())
import diode

behind_the_door = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "triton", "numpy"})
refused = {}
for module in pkgutil.walk_packages(diode.__path__, "diode."):
    if module.name != "diode.cli.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            refused[module.name] = str(error)

import torch
from diode.collection.networks import NetworkSampler
from diode.collection.networks import NetworkSampler
from diode.collection.samplers import LogNormalSampler
from diode.features import COLUMNS, ChoiceTable, feature_matrix
from diode.model import ModelWrapper, Truth
from diode.model.rankers import model_ranker
from diode.storage import merge, read_dataset, statistics, write_dataset
from diode.types.known_hardware import H200

measured = read_dataset(folder / "measured.parquet")
formats = {}
for name in ("json", "msgpack", "parquet"):
    write_dataset(measured, folder / f"{missing}.{name}")
    formats[name] = list(read_dataset(folder / f"{missing}.{name}")) == list(measured)
problem = LogNormalSampler(7).sample(1)[0]
model = ModelWrapper(folder / "model.safetensors")
truth = Truth.of(measured)
print(json.dumps({
    "behind_the_door": behind_the_door,
    "refused": refused,
    "cuda": torch.cuda.is_available(),
    "drawn": [str(problem), str(NetworkSampler(7).sample(1)[0])],
    "formats": formats,
    "counted": statistics(merge([measured, measured])).totals.successes,
    "features": feature_matrix(H200, problem, ChoiceTable.of(measured.choices)).shape == (3, len(COLUMNS)),
    "predicted": [float(value) for value in model.predict(H200, problem, measured.choices).log_ratio],
    "ranked": [int(place) for place in model_ranker(model.model)(truth, truth.problems[0])],
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a data set and a small model, made where nothing is missing."""
    folder = tmp_path_factory.mktemp("core")
    environment, method = Environment(H200), TimingMethod("diode-sweep", "median")
    tiles = (TritonGEMMConfig("triton::mm", 64, 64, 64, 3, 4), TritonGEMMConfig("triton::mm", 128, 64, 32, 4, 8))
    rows = [
        Measurement(problem, choice, environment, method, Timing(problem.flops / 1e7 + 3.0 + place))
        for problem in LogNormalSampler(1).sample(8)
        for place, choice in enumerate((AtenChoice("mm"), *tiles))
    ]
    measured = Dataset.of(rows)
    write_dataset(measured, folder / "measured.parquet")
    small = TrainingSettings(type="base", hidden=8, layers=1, members=1, epochs=1)
    save_model(fit(measured, FitSettings(type="base", network=small)), folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module", params=NEEDED_BY)
def missing(request):
    return request.param


@pytest.fixture(scope="module")
def answer(missing, folder):
    command = [sys.executable, "-c", PROGRAM, missing, str(folder)]
    without_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=without_gpu, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def within(name, roots):
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def test_every_module_imports_but_those_that_by_nature_cannot(missing, answer):
    refused = answer["refused"]
    assert {name: why for name, why in refused.items() if not within(name, NEEDED_BY[missing])} == {}
    assert [name for name in refused if within(name, NEEDS_NO_INDUCTOR)] == []


def test_the_list_names_nothing_that_could_be_imported_after_all(missing, answer):
    refused = answer["refused"]
    assert [root for root in NEEDED_BY[missing] if not any(within(name, (root,)) for name in refused)] == []
    assert all(why.endswith("is blocked") for why in refused.values())


def test_the_core_works_and_answers_the_same(answer, folder):
    problem = LogNormalSampler(7).sample(1)[0]
    choices = read_dataset(folder / "measured.parquet").choices
    predicted = ModelWrapper(folder / "model.safetensors").predict(H200, problem, choices)
    assert answer["drawn"] == [str(problem), str(NetworkSampler(7).sample(1)[0])]
    assert answer["formats"] == {"json": True, "msgpack": True, "parquet": True}
    assert (answer["counted"], answer["features"]) == (24, True)
    assert answer["predicted"] == pytest.approx(predicted.log_ratio.tolist())
    assert sorted(answer["ranked"]) == [0, 1, 2]
    assert answer["cuda"] is False


def test_importing_diode_imports_nothing_heavy(answer):
    assert answer["behind_the_door"] == []
