"""Programs that no Python package brings. Where Debian's are missing, they are installed, which is said."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def program(name: str) -> str:
    """The path of a program whose Debian package has the same name."""
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _say(f"there is no {name}: installing Debian's, which the tests need")
        _install(name)
        found = shutil.which(name)
    if found is None:
        pytest.fail(f"the tests need {name}: install it (Debian: apt-get install {name})")
    return found


def _install(name: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", name]
    # A list of packages that is there may be too old, or empty; it is fetched only where it is.
    for command in (install, ["apt-get", "update", "-qq"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            return
    _say(f"that failed: {done.stderr.strip()}")


def _say(text: str) -> None:
    # Beside what pytest captures: whoever waits for the tests is to see it now.
    os.write(2, f"\n==> tests: {text}\n".encode())
