"""Which steps of a work of several are done, and with which arguments: kept in a file beside what they make."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from diode.errors import FileFormatError
from diode.storage.atomic import write_atomically

STEPS_NAME: Final = ".steps.json"
"""Hidden: who reads all data sets of the folder leaves it alone."""


class Steps:
    """What stands in a folder. Identities are equal where a step would make the same again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STEPS_NAME
        self._identities: dict[str, str] = {}
        if self._path.exists():
            try:
                self._identities = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
            except msgspec.DecodeError as error:
                raise FileFormatError(f"{self._path}: is no record of steps ({error}); remove it") from error

    def stands(self, step: str, identity: str, made: Path) -> bool:
        return made.exists() and self._identities.get(step) == identity

    def note(self, step: str, identity: str) -> None:
        self._identities[step] = identity
        write_atomically(self._path, msgspec.json.format(msgspec.json.encode(self._identities), indent=1) + b"\n")
