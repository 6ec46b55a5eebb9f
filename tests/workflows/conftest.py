"""The piece of H200 data that the tests of the commands have."""

from __future__ import annotations

from tests.cli.conftest import h200

__all__ = ["h200"]
