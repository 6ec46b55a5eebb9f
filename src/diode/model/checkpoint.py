"""Where a training writes down how far it is, so that an interrupted one goes on."""

from __future__ import annotations

import io
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from diode.errors import FileFormatError
from diode.storage.atomic import write_atomically


@dataclass(frozen=True)
class MemberState:
    """One member of an ensemble after some epochs."""

    epoch: int
    network: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    best: dict[str, torch.Tensor]
    best_score: float
    since_best: int


class Checkpoint:
    """One file with the state of each member so far; that of a training with another identity is not taken up."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self._identity = identity
        self._members: dict[int, dict[str, Any]] = {}
        if path.exists():
            saved = _read(path)
            if saved.get("identity") == identity:
                self._members = saved["members"]

    @property
    def begun(self) -> bool:
        return bool(self._members)

    def load(self, member: int) -> MemberState | None:
        saved = self._members.get(member)
        return None if saved is None else MemberState(**saved)

    def save(self, member: int, state: MemberState) -> None:
        self._members[member] = asdict(state)
        content = io.BytesIO()
        torch.save({"identity": self._identity, "members": self._members}, content)
        write_atomically(self.path, content.getvalue())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise FileFormatError(f"{path}: not a checkpoint of this version; remove it to train from the start") from error
    if not isinstance(saved, dict) or saved.keys() != {"identity", "members"}:
        raise FileFormatError(f"{path}: not a checkpoint of this version; remove it to train from the start")
    return saved
