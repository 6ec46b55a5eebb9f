"""On and off, for a user: all that diode does to torch, at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from diode.integration.autoload import integrate_when_inductor_is_loaded, stop_waiting
from diode.integration.base_integration import IntegrationStatus
from diode.integration.integrations import (
    discover_and_register_integrations,
    integrate_all,
    registry,
    undo_all,
)
from diode.integration.matmul_integration import MatmulIntegration


def enable() -> dict[str, IntegrationStatus]:
    """Registers with torch what can be; gives what came of each integration."""
    discover_and_register_integrations()
    return integrate_all()


def disable() -> dict[str, IntegrationStatus]:
    """Undoes all that diode did to torch: from here on, compiles are as without it."""
    return undo_all()


@contextmanager
def disabled() -> Iterator[None]:
    """Inside, no compile of this process is diode's, in no thread; afterwards all is as before."""
    was_waiting = stop_waiting()
    engaged = [name for name, status in registry.status().items() if status]
    undo_all()
    try:
        yield
    finally:
        for name in engaged:
            registry.integrate(name)
        if was_waiting:
            integrate_when_inductor_is_loaded()


def get_stats() -> dict[str, int | float]:
    """What the handler of the whole process did, as its `get_stats()`; empty before it is engaged."""
    integration = registry.get(MatmulIntegration.name)
    choices = integration.choices if isinstance(integration, MatmulIntegration) else None
    return {} if choices is None else choices.get_stats()
