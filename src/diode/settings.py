"""The only reader of the environment; everything else is given values."""

from __future__ import annotations

import os
from pathlib import Path


def named_commit() -> str:
    """`DIODE_COMMIT`: the commit that a copy of the project without its git folder was made from."""
    return os.environ.get("DIODE_COMMIT", "")


def cache_folder() -> Path:
    """`DIODE_CACHE`, or diode's folder in the user's cache: compiled kernels of sweeps."""
    named = os.environ.get("DIODE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diode"


def model_paths() -> tuple[Path, ...]:
    """`DIODE_MODEL_PATH`: files and folders of models, separated as in `PATH`."""
    named = os.environ.get("DIODE_MODEL_PATH", "")
    return tuple(Path(part).expanduser() for part in named.split(os.pathsep) if part)
