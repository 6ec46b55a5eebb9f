"""The integrations of this process: diode's own, those of installed packages, those that a program adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from diode.errors import IntegrationError
from diode.integration.autoload import stop_waiting
from diode.integration.base_integration import BaseIntegration, IntegrationRegistry, IntegrationStatus

ENTRY_POINT_GROUP: Final = "diode.integrations"

_BUILT_IN: Final[dict[str, tuple[str, str, int]]] = {
    "matmul": ("diode.integration.matmul_integration", "create_matmul_integration", 1),
}
"""By name: module, factory, execution order."""
_AFTER_BUILT_IN: Final = 10

registry: Final = IntegrationRegistry()
_packages: Final[dict[str, str]] = {}
"""Which package announced an integration first."""


def discover_and_register_integrations() -> list[str]:
    """Registers diode's own integrations and those of installed packages; gives the names of all.

    A package announces, under the entry-point group `diode.integrations`, a function without arguments that makes a
    `BaseIntegration` of the same name. One that fails is reported by `get_integration_status` and keeps no other from
    being registered.
    """
    for name, (module, factory, order) in _BUILT_IN.items():
        if name not in registry:
            _register_made(name, partial(_made_by, module, factory), order)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else entry.value
        owner = "diode" if entry.name in _BUILT_IN else _packages.setdefault(entry.name, package)
        if owner != package:
            message = f"there is another integration of the name {entry.name!r}, of {owner}: it has to be renamed"
            registry.report(f"{entry.name} ({package})", message)
        elif entry.name not in registry:
            _register_made(entry.name, partial(_announced_by, entry), _AFTER_BUILT_IN)
    return list(registry.status())


def register_integration(integration: BaseIntegration, execute_order: int = 1) -> None:
    """Adds an integration; the lower the order, the earlier it runs."""
    registry.register(integration, execute_order)


def integrate_all() -> dict[str, IntegrationStatus]:
    """Runs all registered integrations that are not engaged yet, and tells what came of each."""
    return registry.integrate_all()


def undo_all() -> dict[str, IntegrationStatus]:
    """Undoes all that integrations did to torch, and what `import diode` still meant to do."""
    stop_waiting()
    return registry.undo_all()


def get_integration_status() -> dict[str, IntegrationStatus]:
    """What came of each integration. What waits for Inductor to be loaded is run first, so that the answer is final."""
    if stop_waiting():
        discover_and_register_integrations()
        integrate_all()
    return registry.status()


def _made_by(module: str, factory: str) -> BaseIntegration:
    integration: BaseIntegration = getattr(import_module(module), factory)()
    return integration


def _announced_by(entry: EntryPoint) -> BaseIntegration:
    integration: BaseIntegration = entry.load()()
    name = getattr(integration, "name", entry.name)
    if name != entry.name:
        raise IntegrationError(f"calls itself {name!r}, and its entry point {entry.name!r}: both must be the same")
    return integration


def _register_made(name: str, make: Callable[[], BaseIntegration], order: int) -> None:
    try:
        registry.register(make(), order)
    except Exception as error:  # noqa: BLE001  # another package's code, which may raise whatever it likes
        registry.report(name, f"cannot be made: {type(error).__name__}: {error}")
