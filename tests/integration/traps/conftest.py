"""What the tests of choosing and those of registering have, for these too."""

from __future__ import annotations

from tests.integration.choices.conftest import _nothing_said_before, make_handler, warnings
from tests.integration.registration.conftest import _as_it_was, compile_bmm, model

__all__ = ["_as_it_was", "_nothing_said_before", "compile_bmm", "make_handler", "model", "warnings"]
