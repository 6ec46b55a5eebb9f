"""Finds trained models: in installed packages, in the folders of `DIODE_MODEL_PATH`, at paths that are named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import msgspec

from diode.errors import DiodeError, FileAccessError, FileFormatError
from diode.model.card import CARD_SUFFIX, ModelCard, card_path, read_card
from diode.model.version import ModelVersion
from diode.model.weights import GBDT_SUFFIX, TENSOR_SUFFIXES
from diode.model.wrapper import ModelWrapper
from diode.settings import model_paths
from diode.storage.atomic import write_atomically
from diode.types import Hardware

ENTRY_POINT_GROUP: Final = "diode.models"
MANIFEST_NAME: Final = "manifest.json"
_WEIGHT_SUFFIXES: Final = (*TENSOR_SUFFIXES, GBDT_SUFFIX)


@dataclass(frozen=True)
class ModelPointer:
    """Where a trained model lies and what it is for; nothing is loaded yet."""

    path: Path
    purpose: str
    version: str
    dependencies: tuple[str, ...] = ()
    """Packages that it needs beyond what diode itself does."""
    source: str = ""
    """Where it was found: a package, `DIODE_MODEL_PATH`, or a path that was named."""

    @cached_property
    def card(self) -> ModelCard:
        return read_card(card_path(self.path))

    def load(self, device: str = "cpu") -> ModelWrapper:
        return ModelWrapper(self.path, device)

    @classmethod
    def to(cls, path: Path, source: str = "") -> ModelPointer:
        """A pointer to the weights at `path`, by the card beside them."""
        card = read_card(card_path(path))
        return cls(path, card.purpose, card.version, ("lightgbm",) if card.network is None else (), source)


@dataclass(frozen=True)
class ModelMatch:
    """How well a model fits what was asked for; a larger `rank` is the better fit."""

    pointer: ModelPointer
    rank: tuple[int, ModelVersion, int]
    why: str
    same_hardware: bool


@dataclass
class ModelRegistry:
    """The models at hand, in the order in which they were found; `problems` says why others could not be read."""

    pointers: list[ModelPointer] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at_hand(cls) -> ModelRegistry:
        """What `DIODE_MODEL_PATH` names, then what packages announce under the entry-point group `diode.models`."""
        registry = cls()
        for path in model_paths():
            registry.add(path, "DIODE_MODEL_PATH")
        for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
            registry.add_package(entry_point)
        return registry

    def add(self, path: Path, source: str = "") -> None:
        """A file of weights, or a folder with any number of them."""
        try:
            found = weight_files(path)
        except DiodeError as error:
            self.problems[str(path)] = str(error)
            return
        for file in found:
            self._add_file(file, source or str(path))

    def add_package(self, entry_point: EntryPoint) -> None:
        """An entry point names a function without arguments, or a value: the folder of a package's models."""
        name = f"entry point {entry_point.name!r}"
        try:
            target = entry_point.load()
            folder = Path(target() if callable(target) else target)
        except Exception as error:  # noqa: BLE001  # another package's code, which may raise whatever it likes
            self.problems[name] = f"{name} of {ENTRY_POINT_GROUP} failed: {type(error).__name__}: {error}"
            return
        distribution = entry_point.dist.name if entry_point.dist is not None else entry_point.name
        self.add(folder, f"package {distribution}")

    def _add_file(self, file: Path, source: str) -> None:
        try:
            self.pointers.append(ModelPointer.to(file, source))
        except DiodeError as error:
            self.problems[str(file)] = str(error)

    def matches(
        self,
        *,
        purpose: str = "matmul",
        hardware: Hardware | None = None,
        op: str | None = None,
        version: str | None = None,
    ) -> list[ModelMatch]:
        """All models that serve, the best first. One for other hardware is among them, and says so."""
        found = [
            _match(pointer, hardware, -number)
            for number, pointer in enumerate(self.pointers)
            if pointer.purpose == purpose
            and (version is None or pointer.version == version)
            and (op is None or op in pointer.card.ops)
        ]
        return sorted(found, key=lambda match: match.rank, reverse=True)

    def find(
        self,
        *,
        purpose: str = "matmul",
        hardware: Hardware | None = None,
        op: str | None = None,
        version: str | None = None,
    ) -> ModelMatch | None:
        """The best of `matches`, or None."""
        found = self.matches(purpose=purpose, hardware=hardware, op=op, version=version)
        return found[0] if found else None

    def manifest(self, folder: Path) -> bytes:
        """The content of `manifest.json` for the models in `folder`."""
        entries = [
            {
                "file": pointer.path.relative_to(folder).as_posix(),
                "name": pointer.card.name,
                "version": pointer.version,
                "purpose": pointer.purpose,
                "type": pointer.card.type,
                "hardware": [device.name for device in pointer.card.hardware],
                "ops": list(pointer.card.ops),
                "weights_sha256": pointer.card.weights_sha256,
            }
            for pointer in self.pointers
            if pointer.path.is_relative_to(folder)
        ]
        document = {"format": "diode-models", "version": 1, "models": entries}
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"

    def write_manifest(self, folder: Path) -> Path:
        """Writes `manifest.json` of the models in `folder`: what is there can then be told without reading them all."""
        path = folder / MANIFEST_NAME
        write_atomically(path, self.manifest(folder))
        return path


def weight_files(path: Path) -> list[Path]:
    """The file itself, or the files of weights in a folder that have a card beside them."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _WEIGHT_SUFFIXES and card_path(file).exists())
    if not path.exists():
        raise FileAccessError(f"{path}: no such file or folder; name a model or a folder of models")
    if path.suffix not in _WEIGHT_SUFFIXES:
        raise FileFormatError(f"{path}: not a model: models end in {', '.join(_WEIGHT_SUFFIXES)}")
    if not card_path(path).exists():
        raise FileAccessError(f"{path}: the {CARD_SUFFIX} that describes it is not beside it")
    return [path]


def _match(pointer: ModelPointer, hardware: Hardware | None, place: int) -> ModelMatch:
    devices = pointer.card.hardware
    kinship, why = _kinship(devices, hardware)
    rank = (kinship, ModelVersion.of(pointer.version), place)
    same = hardware is None or kinship == _SAME
    return ModelMatch(pointer, rank, f"{pointer.card} from {pointer.source}: {why}", same)


_SAME: Final = 3


def _kinship(devices: Iterable[Hardware], hardware: Hardware | None) -> tuple[int, str]:
    names = ", ".join(device.name for device in devices)
    if hardware is None:
        return 0, f"trained on {names}"
    if any(device.name == hardware.name for device in devices):
        return _SAME, f"trained on this kind of device, {hardware.name}"
    if any(device.capability == hardware.capability is not None for device in devices):
        return 2, f"trained on {names}, of the same generation as {hardware.name}"
    alike = any(device.device_type == hardware.device_type for device in devices)
    return int(alike), f"trained on {names}, not on {hardware.name}"
