"""What joins models to torch. Importing the package imports nothing else, neither torch nor Inductor."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from diode.integration.base_integration import (
        BaseIntegration,
        IntegrationRegistry,
        IntegrationStatus,
        ModelPointer,
    )
    from diode.integration.integrations import (
        discover_and_register_integrations,
        get_integration_status,
        integrate_all,
        register_integration,
        undo_all,
    )

__all__ = [
    "BaseIntegration",
    "IntegrationRegistry",
    "IntegrationStatus",
    "ModelPointer",
    "discover_and_register_integrations",
    "get_integration_status",
    "integrate_all",
    "register_integration",
    "undo_all",
]

_FRAME: Final = ("BaseIntegration", "IntegrationRegistry", "IntegrationStatus", "ModelPointer")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "base_integration" if name in _FRAME else "integrations"
    return getattr(import_module(f"{__name__}.{module}"), name)
