"""All checks, those first that matter most."""

from __future__ import annotations

from tests.integration.gpu import contract, exporting, networks, numerics
from tests.integration.gpu.registry import REGISTERED, Check

__all__ = ["CHECKS", "Check"]

_ORDER = [module.__name__ for module in (numerics, contract, networks, exporting)]
CHECKS: list[Check] = sorted(REGISTERED, key=lambda check: _ORDER.index(check.module))
