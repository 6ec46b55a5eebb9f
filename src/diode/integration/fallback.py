"""Falling back to what Inductor would have done: counted by reason, said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from diode.errors import DiodeError, SelectionError
from diode.integration.statistics import FallbackReason

log = logging.getLogger("diode")

_lock = threading.Lock()
_said: set[str] = set()


def say_once(topic: str, message: str) -> None:
    """Warns of a topic the first time that it comes up in this process."""
    with _lock:
        if topic in _said:
            return
        _said.add(topic)
    log.warning("%s", message)


def forget_what_was_said() -> None:
    with _lock:
        _said.clear()


@contextmanager
def failing_as(reason: FallbackReason, what: str, remedy: str) -> Iterator[None]:
    """Whatever goes wrong inside is a `SelectionError` of this reason."""
    try:
        yield
    except SelectionError:
        raise
    except DiodeError as error:
        raise SelectionError(reason, str(error)) from error
    except Exception as error:  # the boundary to a user's compile
        raise SelectionError(reason, f"{what} failed: {type(error).__name__}: {error}; {remedy}") from error
