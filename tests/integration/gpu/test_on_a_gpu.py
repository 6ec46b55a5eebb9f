"""Diode inside torch.compile on a real GPU: `pytest -m gpu`, or `python benchmarks/gpu_checks.py` without pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.gpu.checks import CHECKS, Check


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_on_a_gpu(check: Check, tmp_path: Path) -> None:
    check.run(tmp_path)
