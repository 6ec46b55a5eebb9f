"""The JSON beside a model's weights: what it is, what it was made from, what it must be fed, how good it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from diode.errors import FileFormatError
from diode.model.spec import NetworkSpec
from diode.storage.atomic import write_atomically
from diode.storage.flaws import decoded, naming_file
from diode.types import Hardware

CARD_SCHEMA: Final = 1
CARD_SUFFIX: Final = ".json"

Text = Annotated[str, msgspec.Meta(max_length=2000)]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Setting = None | bool | int | float | str


class TrainingData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file that the model learned from."""

    name: Text
    sha256: Digest
    measurements: int
    problems: int


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a model but its weights."""

    name: Text
    version: Text
    type: Text
    feature_schema: int
    columns: tuple[str, ...]
    sigma_scale: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    """Calibration: what its members' doubt is multiplied with."""
    weights_sha256: Digest
    hardware: tuple[Hardware, ...]
    ops: tuple[Text, ...]
    precisions: tuple[Text, ...]
    templates: tuple[Text, ...]
    """Templates and library kernels of its training data."""
    purpose: Text = "matmul"
    network: NetworkSpec | None = None
    screen: NetworkSpec | None = None
    """A small network that leaves only the plausible choices to the large one."""
    torch: tuple[Text, ...] = ()
    triton: tuple[Text, ...] = ()
    template_hashes: tuple[tuple[Text, Text], ...] = ()
    data: tuple[TrainingData, ...] = ()
    seed: int = 0
    settings: dict[str, Setting] = {}
    metrics: dict[str, float] = {}
    diode: Text = ""
    commit: Text = ""
    command: Text = ""
    trained: Text = ""
    """Day, ISO 8601."""
    format: Literal["diode-model"] = "diode-model"
    schema: int = CARD_SCHEMA

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def card_path(weights: Path) -> Path:
    return weights.with_suffix(CARD_SUFFIX)


class _Header(msgspec.Struct):
    format: str = ""
    schema: int = 0


def read_card(path: Path) -> ModelCard:
    with naming_file(path):
        content = path.read_bytes()
        header = decoded(content, _Header)
        if header.format != "diode-model":
            raise FileFormatError(f"{path}: does not describe a model of diode")
        if header.schema != CARD_SCHEMA:
            raise FileFormatError(
                f"{path}: has schema {header.schema}, this version of diode reads {CARD_SCHEMA}: "
                "train the model again, or install the version of diode that wrote it"
            )
        card: ModelCard = decoded(content, ModelCard)
    return card


def write_card(card: ModelCard, path: Path) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")
