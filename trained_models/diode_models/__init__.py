"""Trained models for diode, which finds them by the entry point that this package announces."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""Where they lie, each with its card beside it."""
