"""Weights and cards as files: what is not exactly a model of this diode is refused, and nothing of it runs."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.model.conftest import untrained

from diode.errors import DiodeError, FileAccessError, FileFormatError, UsageError
from diode.features import COLUMNS, SCHEMA_VERSION
from diode.model.card import card_path, read_card, write_card
from diode.model.fitting import save_model
from diode.model.spec import NetworkSpec
from diode.model.weights import check_suffix, decode_tensors, encode_tensors
from diode.model.wrapper import ModelWrapper

SUFFIXES = (".safetensors", ".pt")
SHAPES = {"weight": (2, 3), "bias": (3,)}
Parameters = dict[str, NDArray[np.float32]]


def parameters() -> Parameters:
    return {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([0.5, -1, 2], np.float32)}


@pytest.fixture(params=SUFFIXES)
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"model{request.param}"
    save_model(untrained(), path)
    return path


def replace_weights(path: Path, content: bytes) -> None:
    """As if the file had been made so: the card names what is there."""
    path.write_bytes(content)
    card = read_card(card_path(path))
    write_card(msgspec.structs.replace(card, weights_sha256=hashlib.sha256(content).hexdigest()), card_path(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tensors_come_back_as_they_were(suffix: str) -> None:
    decoded = decode_tensors(Path(f"model{suffix}"), encode_tensors(parameters(), suffix), SHAPES)
    assert decoded.keys() == SHAPES.keys()
    for name, value in parameters().items():
        np.testing.assert_array_equal(decoded[name], value)
        assert decoded[name].dtype == np.float32


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("bias"), "tensor 'bias' is missing"),
        (lambda p: p.update(extra=np.zeros(1, np.float32)), "tensor 'extra' does not belong"),
        (lambda p: p.update(bias=np.zeros(4, np.float32)), r"tensor 'bias' is float32\[4\], not float32\[3\]"),
        (lambda p: p["weight"].__setitem__((1, 1), np.nan), "tensor 'weight' holds what is no number"),
        (lambda p: p["bias"].__setitem__(0, np.inf), "tensor 'bias' holds what is no number"),
    ],
    ids=["missing", "too many", "other shape", "NaN", "infinite"],
)
def test_tensors_that_are_not_the_models_are_refused(
    suffix: str, change: Callable[[Parameters], object], message: str
) -> None:
    changed = parameters()
    change(changed)
    with pytest.raises(FileFormatError, match=f"^model{suffix}: {message}"):
        decode_tensors(Path(f"model{suffix}"), encode_tensors(changed, suffix), SHAPES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_tensors_of_another_type_are_refused(dtype: torch.dtype) -> None:
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(2, 3), "bias": torch.zeros(3, dtype=dtype)}, content)
    with pytest.raises(FileFormatError, match=r"model\.pt: .*bias"):
        decode_tensors(Path("model.pt"), content.getvalue(), SHAPES)


@pytest.mark.parametrize(
    "held",
    [torch.zeros(3), [torch.zeros(3)], {"weight": [1.0]}, {"weight": torch.zeros(2, 3), "epoch": 3}],
    ids=["a tensor", "a list", "numbers", "more than tensors"],
)
def test_what_is_no_dictionary_of_tensors_is_refused(held: Any) -> None:
    content = io.BytesIO()
    torch.save(held, content)
    with pytest.raises(FileFormatError, match="dictionary of tensors and nothing else"):
        decode_tensors(Path("model.pt"), content.getvalue(), SHAPES)


class Hostile:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._folder),))


def hostile_files(trap: Path) -> dict[str, bytes]:
    saved = io.BytesIO()
    torch.save({"weight": Hostile(trap)}, saved)
    hidden = io.BytesIO()
    torch.save({"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}, hidden)
    smuggled = io.BytesIO()
    with zipfile.ZipFile(hidden) as before, zipfile.ZipFile(smuggled, "w", zipfile.ZIP_STORED) as after:
        for entry in before.infolist():
            content = before.read(entry)
            after.writestr(entry, pickle.dumps(Hostile(trap), 2) if entry.filename.endswith("data.pkl") else content)
    return {"torch": saved.getvalue(), "zip": smuggled.getvalue(), "pickle": pickle.dumps(Hostile(trap), 2)}


@pytest.mark.parametrize("kind", ["torch", "zip", "pickle"])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(kind: str, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    content = hostile_files(trap)[kind]
    path = tmp_path / "model.pt"
    save_model(untrained(), path)
    replace_weights(path, content)
    with pytest.raises(FileFormatError, match=r"model\.pt: .*(could run code|not a file of tensors)"):
        _ = ModelWrapper(path).model
    assert not trap.exists()


def test_the_hostile_pickle_of_these_tests_does_run_code_where_it_is_let(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    torch.load(io.BytesIO(hostile_files(trap)["torch"]), weights_only=False)
    assert trap.is_dir()


def test_a_truncated_file_is_refused(artifact: Path) -> None:
    content = artifact.read_bytes()
    for length in (0, 1, 7, 8, 100, len(content) // 2, len(content) - 1):
        replace_weights(artifact, content[:length])
        with pytest.raises(FileFormatError, match=rf"^{artifact}: "):
            _ = ModelWrapper(artifact).model


def test_a_file_of_another_format_is_refused(artifact: Path) -> None:
    for content in (b"not tensors at all" * 20, b"\xff" * 400, b"PK\x03\x04" + b"\0" * 100):
        replace_weights(artifact, content)
        with pytest.raises(FileFormatError, match=rf"^{artifact}: "):
            _ = ModelWrapper(artifact).model


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whatever_is_damaged_the_error_is_one_of_ours(suffix: str) -> None:
    whole, draw = encode_tensors(parameters(), suffix), random.Random(0)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 2, 8))):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            decode_tensors(Path(f"model{suffix}"), bytes(damaged), SHAPES)
        except DiodeError:
            refused += 1
    assert refused > 500


def test_weights_that_are_not_those_that_the_card_describes_are_refused(artifact: Path) -> None:
    other = artifact.with_name(f"other{artifact.suffix}")
    save_model(untrained(seed=1), other)
    card_path(other).replace(card_path(artifact))
    with pytest.raises(FileFormatError, match=r"is not the file that model\.json describes"):
        _ = ModelWrapper(artifact).model


def test_weights_of_another_architecture_are_refused(artifact: Path) -> None:
    card = read_card(card_path(artifact))
    wider = msgspec.structs.replace(card, network=NetworkSpec("deep", len(COLUMNS), 32, 2, 3))
    write_card(wider, card_path(artifact))
    with pytest.raises(FileFormatError, match=r"tensor '.*' is float32"):
        _ = ModelWrapper(artifact).model


def test_a_model_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(untrained(columns=("moon_phase", *COLUMNS[1:])), path)
    with pytest.raises(
        FileFormatError, match=r"model\.json: was trained on other features .*moon_phase.*train it again"
    ):
        _ = ModelWrapper(path).card
    save_model(untrained(columns=COLUMNS[::-1]), path)
    with pytest.raises(FileFormatError, match="in another order"):
        _ = ModelWrapper(path).card
    save_model(untrained(feature_schema=SCHEMA_VERSION + 1), path)
    with pytest.raises(FileFormatError, match=rf"version {SCHEMA_VERSION + 1}\) than this"):
        _ = ModelWrapper(path).card


def test_a_card_comes_back_as_it_was(artifact: Path) -> None:
    card = read_card(card_path(artifact))
    assert card == msgspec.structs.replace(untrained().card, weights_sha256=card.weights_sha256)
    assert str(card) == "untrained 1"


def changed_card(path: Path, **changes: Any) -> None:
    document = json.loads(card_path(path).read_text())
    card_path(path).write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 99}, "has schema 99, this version of diode reads 1"),
        ({"format": "diode-dataset"}, "does not describe a model of diode"),
        ({"weights_sha256": "abc"}, "weights_sha256"),
        ({"sigma_scale": -1}, "sigma_scale"),
        ({"sigma_scale": math.inf}, "malformed"),
        ({"of_tomorrow": 1}, "of_tomorrow"),
        ({"network": {"type": "wide", "columns": 1, "hidden": 1, "layers": 1}}, "network.type"),
        ({"network": {"type": "deep", "columns": 1, "hidden": 10**9, "layers": 1}}, "network.hidden"),
        ({"hardware": [{"name": "H200"}]}, r"hardware\[0\]"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_a_card_that_is_wrong_is_refused_by_file_and_field(
    artifact: Path, changes: dict[str, Any], message: str
) -> None:
    changed_card(artifact, **changes)
    with pytest.raises(FileFormatError, match=rf"{card_path(artifact)}.*({message})"):
        read_card(card_path(artifact))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "diode-model"}', b"[" * 100_000])
def test_what_is_no_card_is_refused(artifact: Path, content: bytes) -> None:
    card_path(artifact).write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"^{card_path(artifact)}: "):
        read_card(card_path(artifact))


def test_a_missing_card_or_file_is_an_error_that_names_it(artifact: Path) -> None:
    artifact.unlink()
    with pytest.raises(FileAccessError, match=str(artifact)):
        _ = ModelWrapper(artifact).model
    card_path(artifact).unlink()
    with pytest.raises(FileAccessError, match=str(card_path(artifact))):
        _ = ModelWrapper(artifact).card


def test_weights_go_into_files_of_known_formats() -> None:
    with pytest.raises(UsageError, match=r"model\.pth: .*\.safetensors or \.pt"):
        check_suffix(Path("model.pth"))


def test_a_model_that_cannot_be_written_leaves_what_was_there(artifact: Path) -> None:
    before = {path.name: path.read_bytes() for path in artifact.parent.iterdir()}
    with pytest.raises(DiodeError):
        save_model(untrained(seed=2), artifact.parent / "no such folder" / artifact.name)
    assert {path.name: path.read_bytes() for path in artifact.parent.iterdir()} == before
