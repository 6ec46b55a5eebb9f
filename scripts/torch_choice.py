"""Which torch, and which triton beside it, the set-up installs or keeps. Standard library only, and no side effects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MINIMUM_TORCH = (2, 10)
DEFAULT_TORCH = "2.13.0"

# A CPU build of torch brings no triton, yet Inductor's Triton heuristics run, and are tested, without a GPU.
# Each is what the GPU build of the same torch asks for, but for 2.13: Inductor's templates compile under 3.9.0 too.
TRITON_FOR_TORCH = {
    (2, 10): "3.6.0",
    (2, 11): "3.6.0",
    (2, 12): "3.7.1",
    (2, 13): "3.9.0",
    (2, 14): "3.8.0",
    (2, 15): "3.9.0",
}


class SetupError(Exception):
    """The environment cannot be built; the message says what to do about it."""


@dataclass(frozen=True)
class Environment:
    """What an environment's interpreter finds; `needs_triton` is whether its torch asks pip for one itself."""

    python: tuple[int, int]
    torch: str | None
    needs_triton: bool
    triton: str | None


@dataclass(frozen=True)
class TorchPlan:
    """Where torch comes from: kept as it is, or the first of `candidates` (pip requirements) that can be had."""

    reason: str
    candidates: tuple[str, ...] = ()
    from_base: bool = False


def release(version: str) -> tuple[int, int]:
    """(2, 13) of '2.13.0+cpu'."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise SetupError(f"«{version}» is not a version of torch; give one such as {DEFAULT_TORCH}, or a .whl file")
    return int(match[1]), int(match[2])


def is_version(version: str | None, asked: str) -> bool:
    """Whether an installed version is the one asked for; '2.13.0' also names its builds, such as '2.13.0+cpu'."""
    return version is not None and asked in (version, version.partition("+")[0])


def plan_torch(asked: str, in_venv: str | None, in_base: str | None, driver: bool) -> TorchPlan:
    """Which torch the environment gets.

    `asked` is TORCH: a version, the path of a wheel, or empty. With nothing asked for, a recent enough torch stays:
    the environment's own first, then the base interpreter's. Otherwise one is installed, a CPU build where there is no
    NVIDIA driver and pip knows of one.
    """
    if asked.endswith(".whl"):
        if not Path(asked).is_file():
            raise SetupError(f"TORCH={asked}: there is no such file; give a wheel that exists, or a version")
        return TorchPlan(f"the wheel {asked}, as asked for", (str(Path(asked).resolve()),))
    if asked and release(asked) < MINIMUM_TORCH:
        raise SetupError(f"TORCH={asked}: diode needs torch {MINIMUM_TORCH[0]}.{MINIMUM_TORCH[1]} or later")

    for version, place, from_base in ((in_venv, "the environment", False), (in_base, "the base interpreter", True)):
        if version and (is_version(version, asked) if asked else release(version) >= MINIMUM_TORCH):
            return TorchPlan(f"torch {version} of {place} is kept", from_base=from_base)

    version = asked or DEFAULT_TORCH
    reason = f"torch {version}, {'as asked for' if asked else 'the default'}"
    if "+" in version:
        return TorchPlan(reason, (f"torch=={version}",))
    if driver:
        reason += ": a GPU build, since there is an NVIDIA driver"
        return TorchPlan(reason, (f"torch=={version},!={version}+cpu",))
    reason += ": a CPU build if pip finds one, since there is no NVIDIA driver"
    return TorchPlan(reason, (f"torch=={version}+cpu", f"torch=={version}"))


def triton_to_install(found: Environment) -> str | None:
    """The triton to put beside the torch found; None where the right one is there, or one that torch brought."""
    if found.torch is None or (found.needs_triton and found.triton):
        return None
    wanted = TRITON_FOR_TORCH.get(release(found.torch))
    return wanted if wanted != found.triton else None
