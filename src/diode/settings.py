"""The only reader of the environment; everything else is given values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from diode.errors import UsageError


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


def learn_path() -> Path | None:
    """`DIODE_LEARN`: the folder that keeps what this user's compiles benchmark; unset, nothing is kept."""
    named = os.environ.get("DIODE_LEARN", "")
    return Path(named).expanduser() if named else None


OnMismatch = Literal["warn", "use", "off"]


def autoload() -> bool:
    """`DIODE_AUTOLOAD`: whether `import diode` registers the models of installed packages; `0` says no."""
    return os.environ.get("DIODE_AUTOLOAD", "1") != "0"


def on_mismatch() -> OnMismatch | None:
    """`DIODE_ON_MISMATCH`: what becomes of a model trained on another kind of GPU, or with another torch or triton."""
    named = os.environ.get("DIODE_ON_MISMATCH", "")
    if named in ("warn", "use", "off"):
        return named  # type: ignore[return-value]  # mypy does not narrow by membership
    if named:
        raise UsageError(f"DIODE_ON_MISMATCH={named!r}: must be warn, use or off")
    return None


def top_k() -> int | Literal["auto"] | None:
    """`DIODE_TOP_K`: how many choices are left for a GEMM, a number or `auto`."""
    named = os.environ.get("DIODE_TOP_K", "")
    if not named:
        return None
    if named == "auto":
        return "auto"
    if named.isdigit() and int(named) >= 1:
        return int(named)
    raise UsageError(f"DIODE_TOP_K={named!r}: must be a number from 1 on, or auto")
