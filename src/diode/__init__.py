"""torch-diode: learned kernel choices for torch.compile.

Where a package of models is installed (torch-diode is one), importing this has them choose the kernels of every
`torch.compile(mode="max-autotune")` in the process; `DIODE_AUTOLOAD=0` keeps it from that. Else it changes nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from diode.integration.control import disable, disabled, enable, get_stats
    from diode.integration.decision import last_decision
    from diode.integration.integrations import get_integration_status

__version__ = "0.2.0"

__all__ = [
    "__version__",
    "disable",
    "disabled",
    "enable",
    "get_integration_status",
    "get_stats",
    "last_decision",
]

_HOME: Final = {
    "disable": "control",
    "disabled": "control",
    "enable": "control",
    "get_integration_status": "integrations",
    "get_stats": "control",
    "last_decision": "decision",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"diode.integration.{_HOME[name]}"), name)


def _register_models_of_packages() -> None:
    from diode.settings import autoload

    if not autoload():
        return
    from importlib.metadata import entry_points

    if entry_points(group="diode.models"):
        from diode.integration.autoload import integrate_when_inductor_is_loaded

        integrate_when_inductor_is_loaded()


_register_models_of_packages()
