"""Builds .venv, the environment that `make test` and `make demo` run in, or leaves it alone when it is up to date.

`--venv` names another folder: each torch of `make test-torch` has its own. Run with the interpreter that the
environment is to have. Nothing is installed yet at that point, so only the standard library is imported. Every package
comes at the version that requirements/constraints.txt pins, but torch and triton: they depend on the machine, and
torch_choice.py chooses them.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib import metadata
from pathlib import Path

import torch_choice
from torch_choice import DEFAULT_TORCH, Environment, SetupError, TorchPlan, is_version, plan_torch, triton_to_install

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
DEFAULT_VENV = ".venv"

PYTHONS = ((3, 10), (3, 13))

PROBE = """
import json, sys
from importlib import metadata
def installed(name):
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
torch, triton = installed("torch"), installed("triton") or installed("pytorch-triton")
needs = (torch.requires or []) if torch else []
print(json.dumps({
    "python": list(sys.version_info[:2]),
    "torch": torch.version if torch else None,
    "needs_triton": any(need.startswith(("triton", "pytorch-triton")) for need in needs),
    "triton": triton.version if triton else None,
}))
"""

CHECK = """
import lightgbm, matplotlib, msgspec, numpy, pyarrow, rich, safetensors, torch, typer
import diode
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA GPU"
print(f"torch {torch.__version__}, {device}, diode {diode.__version__}")
"""


def has_nvidia_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return shutil.which("nvidia-smi") is not None
    return True


def base_torch() -> metadata.Distribution | None:
    """The torch of the interpreter that runs this script."""
    try:
        return metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None


def check_machine() -> None:
    """Stops before anything is built where something is missing that pip cannot install."""
    here = sys.version_info[:2]
    if not PYTHONS[0] <= here <= PYTHONS[1]:
        raise SetupError(
            f"{sys.executable} is Python {here[0]}.{here[1]}; diode runs on 3.{PYTHONS[0][1]} to 3.{PYTHONS[1][1]}: "
            "name another interpreter, such as PYTHON=python3.12"
        )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot create virtual environments: install its venv package (Debian, Ubuntu: "
            f"apt-get install python{here[0]}.{here[1]}-venv), or name another interpreter with PYTHON=..."
        )
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise SetupError(
            f"there is no C++ compiler {compiler}, and torch.compile needs one: install it (Debian, Ubuntu: "
            "apt-get install g++; macOS: xcode-select --install), or name another with CXX=..."
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise SetupError(
            f"{sys.executable} has no C headers (Python.h), and torch.compile needs them: install them (Debian, "
            f"Ubuntu: apt-get install python{here[0]}.{here[1]}-dev), or name another interpreter with PYTHON=..."
        )


class Venv:
    """The folder of an environment, and what is asked of it before it is built anew."""

    def __init__(self, folder: str) -> None:
        self.path = ROOT / folder
        self.name = self.path.name
        self.python = self.path / "bin" / "python"
        self.stamp = self.path / "diode-setup.json"

    def is_current(self, asked: str) -> bool:
        """Whether it was completed from the same pins, with a torch that answers what is asked now."""
        try:
            stamp = json.loads(self.stamp.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        same_torch = asked in ("", stamp["asked"]) or is_version(stamp["torch"], asked)
        return bool(self.python.exists() and stamp["fingerprint"] == fingerprint() and same_torch)

    def probe(self) -> Environment | None:
        """What it has; None where there is none, or its interpreter or pip does not run."""
        if not self.python.exists():
            return None
        pip = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, check=False)
        answer = subprocess.run([self.python, "-c", PROBE], capture_output=True, text=True, check=False)
        if pip.returncode or answer.returncode:
            return None
        found = json.loads(answer.stdout)
        return Environment(
            python=(found["python"][0], found["python"][1]),
            torch=found["torch"],
            needs_triton=found["needs_triton"],
            triton=found["triton"],
        )

    def probe_built(self) -> Environment:
        found = self.probe()
        if found is None:
            raise SetupError(f"{self.path} does not run; remove it and try again: make distclean")
        return found

    def base_packages_file(self) -> Path:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.path / "lib" / version / "site-packages" / "base_interpreter.pth"


def fingerprint() -> str:
    """Changes when an environment that was right before no longer is."""
    digest = hashlib.sha256(f"{ROOT} {sys.version_info[:2]}".encode())
    for path in (CONSTRAINTS, ROOT / "pyproject.toml", Path(__file__), Path(torch_choice.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Builder:
    """Runs the steps of one set-up and says what each does and how long it took."""

    def __init__(self, venv: Venv) -> None:
        self.venv = venv
        self.start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[set-up {time.monotonic() - self.start:4.0f} s] {text}", flush=True)

    def pip(self, *arguments: str, quiet: bool = True) -> None:
        command = [str(self.venv.python), "-m", "pip", "install", "-c", str(CONSTRAINTS), *arguments]
        if subprocess.run([*command, "-qq"] if quiet else command, cwd=ROOT, check=False).returncode:
            raise SetupError(
                f"this failed, pip says above why: {' '.join(command)}\n"
                "Without the network, set PIP_FIND_LINKS to a folder that has the wheels."
            )

    def can_install(self, requirement: str) -> bool:
        command = [str(self.venv.python), "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "-qq"]
        return subprocess.run([*command, requirement], capture_output=True, check=False).returncode == 0

    def create(self, why: str) -> None:
        self.say(f"creating {self.venv.name} with Python {sys.version.split()[0]} ({sys.executable}): {why}")
        if subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.venv.path)], check=False).returncode:
            raise SetupError(
                f"{sys.executable} could not create {self.venv.path}; it says above why. Where its venv package is "
                "missing, install it (Debian, Ubuntu: apt-get install python3-venv), or name another interpreter: "
                "PYTHON=..."
            )

    def open_base(self, torch: metadata.Distribution) -> None:
        """Lets the environment see the base interpreter's packages, behind its own.

        --system-site-packages would do the same, but where the base is itself a virtual environment it opens the
        interpreter below, which may have no torch.
        """
        folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        folders.append(str(torch.locate_file("")))
        lines = [f"import site; site.addsitedir({folder!r})" for folder in dict.fromkeys(folders)]
        self.venv.base_packages_file().write_text("\n".join(lines) + "\n")

    def install_torch(self, plan: TorchPlan) -> None:
        *preferred, last = plan.candidates
        for candidate in preferred:
            if self.can_install(candidate):
                last = candidate
                break
            self.say(f"pip finds no {candidate} for this Python; taking {last} (its GPU libraries are several GB)")
        self.venv.base_packages_file().unlink(missing_ok=True)
        self.say(f"installing {last}; this is the long download")
        self.pip(last, quiet=False)

    def build(self, asked: str) -> None:
        check_machine()
        here = sys.version_info[:2]
        base = base_torch()
        found = self.venv.probe()
        why = None
        if found is None:
            why = "there is none that works"
        elif found.python != here:
            why = f"the one that is there has Python {found.python[0]}.{found.python[1]}"
        in_venv = found.torch if found and not why else None
        plan = plan_torch(asked, in_venv, base.version if base else None, has_nvidia_driver())
        if why is None and plan.from_base:
            why = "the one that is there does not use the base interpreter's torch"
        self.venv.stamp.unlink(missing_ok=True)
        if why:
            self.create(why)
        if plan.from_base and base:
            self.open_base(base)
        self.say("installing pip, pinned")
        self.pip(pinned("pip"))

        self.say(plan.reason)
        if plan.candidates:
            self.install_torch(plan)
        kept = self.venv.probe_built()
        triton = triton_to_install(kept) if sys.platform == "linux" else None
        if triton:
            self.say(f"installing triton {triton}, which this build of torch does not bring")
            self.pip("--no-deps", f"triton=={triton}")

        self.say("installing diode (editable), what it needs and the development tools, all pinned")
        extras = "dev,gpu" if has_nvidia_driver() else "dev"
        self.pip(pinned("hatchling"), pinned("editables"))
        self.pip("--no-build-isolation", "-e", f".[{extras}]", f"torch=={kept.torch}")

        self.say("checking that all of it imports")
        if subprocess.run([self.venv.python, "-c", CHECK], cwd=ROOT, check=False).returncode:
            raise SetupError(
                "the environment does not import, see above; name another torch, such as "
                f"TORCH={DEFAULT_TORCH}, or begin again: make distclean"
            )
        stamp = {"fingerprint": fingerprint(), "asked": asked, "torch": self.venv.probe_built().torch}
        self.venv.stamp.write_text(json.dumps(stamp, indent=1) + "\n")
        self.say(f"{self.venv.name} is ready")


def pinned(package: str) -> str:
    for line in CONSTRAINTS.read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line
    raise SetupError(f"{CONSTRAINTS} does not pin {package}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds an environment, or leaves it alone when it is up to date.")
    parser.add_argument("--torch", default="", help="a version of torch, or a wheel; empty: see CONTRIBUTING.md")
    parser.add_argument("--venv", default=DEFAULT_VENV, help=f"its folder in the project; {DEFAULT_VENV} if not given")
    arguments = parser.parse_args()
    asked: str = arguments.torch.strip()
    venv = Venv(arguments.venv)
    if Path(sys.prefix) == venv.path:
        # it is activated and may have to be made anew: that is its base interpreter's to do
        base = str(sys._base_executable)  # type: ignore[attr-defined]
        os.execv(base, [base, __file__, "--torch", asked, "--venv", arguments.venv])
    if venv.is_current(asked):
        return 0
    try:
        Builder(venv).build(asked)
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up: stopped; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
