"""The checks use what benchmarks measure with: a cold compile, the small models."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
