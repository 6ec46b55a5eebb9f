"""The same as the command `diode`, from a checkout: `python workflows/matmul_toolkit.py collect ...`."""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from diode.cli import main
except ModuleNotFoundError:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    from diode.cli import main

if __name__ == "__main__":
    main()
