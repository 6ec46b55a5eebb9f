"""Where output goes: results to stdout, all else to stderr."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console
from rich.text import Text

_FILE_WIDTH: Final = 160
"""Of tables that go into a file or a pipe, where nothing has to fit a screen."""

out: Final = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _FILE_WIDTH)
err: Final = Console(stderr=True, highlight=False, soft_wrap=True)


def fail(error: Exception) -> None:
    err.print(Text.assemble(("error: ", "bold red"), str(error)))


def microseconds(time_us: float) -> str:
    """A time with its unit, to three digits."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3g} ms"
    return f"{time_us:.3g} us"
