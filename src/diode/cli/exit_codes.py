"""What a command leaves behind for a script."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
WRONG_WORDS: Final = 2
STOPPED: Final = 130
"""It was told to stop, as a shell has it for Ctrl-C: a script that goes on by steps must not."""
