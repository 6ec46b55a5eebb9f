"""Environments of their own that have all of this one's packages but diode, without the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS = ("diode", "torch_diode", "_editable", "__pycache__")


def packages_without_diode(folder: Path) -> Path:
    """A folder that links to everything that is installed here, but what is diode's."""
    folder.mkdir()
    for place in map(Path, sys.path):
        if place.name not in ("site-packages", "dist-packages"):
            continue
        for found in place.iterdir():
            link = folder / found.name
            if not found.name.startswith(OURS) and found.suffix != ".pth" and not link.exists():
                link.symlink_to(found)
    return folder


class Installed:
    """An environment in which wheels were installed by pip, as a user would."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "others.pth").write_text(f"{packages}\n")

    def install(self, *requirements: str, wheels: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--isolated", "install", "-q"]
        command = [*pip, "--no-index", "--find-links", str(wheels), *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def run(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.python), "-c", program], environment)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.folder / "bin" / words[0]), *words[1:]], {})

    def answer(self, program: str, **environment: str) -> Any:
        """What a program prints as JSON; it says nothing else."""
        done = self.run(program, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)

    def _run(self, command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("DIODE_", "PYTHON", "COV"))}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, env=clean | environment
        )
