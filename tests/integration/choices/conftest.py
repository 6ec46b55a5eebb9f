"""Handlers around models that were written by hand, and what diode said meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.choices.models import SQUARE_64, write_model

from diode.integration.choices import DiodeInductorChoices
from diode.integration.fallback import forget_what_was_said
from diode.integration.operation import stop_taking_back

MakeHandler = Callable[..., DiodeInductorChoices]
"""`make_handler(weights..., top_k_configs=...)`: see `write_model` for the weights."""

_OF_THE_HANDLER = (
    "learn",
    "top_k_configs",
    "enable_fallback",
    "performance_threshold",
    "on_mismatch",
    "wrapped",
    "device",
)


@pytest.fixture
def make_handler(tmp_path: Path) -> MakeHandler:
    """A handler that raises where it would fall back, unless it is told otherwise; its model likes `SQUARE_64`."""

    def make(**given: Any) -> DiodeInductorChoices:
        settings = {name: given.pop(name) for name in _OF_THE_HANDLER if name in given}
        path = tmp_path / f"model_{len(list(tmp_path.iterdir()))}.safetensors"
        write_model(path, **({"likes": SQUARE_64, "library": 1.5} | given))
        return DiodeInductorChoices(path, **({"enable_fallback": False, "performance_threshold": 1000.0} | settings))

    return make


@pytest.fixture(autouse=True)
def _nothing_said_before() -> Iterator[None]:
    forget_what_was_said()
    yield
    forget_what_was_said()
    stop_taking_back()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was said so far, as a user reads it: with whatever stack traces there are."""

    def read() -> list[str]:
        formatter = logging.Formatter("%(message)s")
        return [formatter.format(record) for record in caplog.records if record.name == "diode"]

    return read
