"""The command line: one module per command, thin; `diode` and `python workflows/matmul_toolkit.py` are the same."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command; an error that diode knows becomes one line on stderr and exit code 1."""
    from diode.cli.app import app
    from diode.cli.console import fail
    from diode.errors import DiodeError

    try:
        app()
    except DiodeError as error:
        fail(error)
        sys.exit(1)
