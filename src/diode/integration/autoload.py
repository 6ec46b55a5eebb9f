"""What `import diode` does where a package of models is installed: it waits for Inductor, then registers.

Importing Inductor takes seconds, and a process that compiles nothing never needs it. So a hook on the import of
`torch._inductor.compile_fx`, which every compile begins with, runs the integrations when that module is complete: all
that they need is imported by then, and nothing was compiled yet.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

log = logging.getLogger("diode")

_AWAITED: Final = "torch._inductor.compile_fx"


class _Waiting(MetaPathFinder):
    """Finds the awaited module as it would be found without it, and has the integrations run after it was imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _AWAITED:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _ThenIntegrate(spec.loader)
                return spec
        return None


class _ThenIntegrate(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps no trace of the hook.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if stop_waiting():
            integrate_quietly()


_waiting: Final = _Waiting()


def integrate_when_inductor_is_loaded() -> None:
    """Now where it is loaded already, else as soon as it is."""
    if _AWAITED in sys.modules:
        integrate_quietly()
    elif _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)


def stop_waiting() -> bool:
    """Whether it still waited."""
    if _waiting not in sys.meta_path:
        return False
    sys.meta_path.remove(_waiting)
    return True


def integrate_quietly() -> None:
    """Runs all integrations; whatever goes wrong is logged, not raised into the import that led here."""
    try:
        from diode.integration.integrations import discover_and_register_integrations, integrate_all

        discover_and_register_integrations()
        for status in integrate_all().values():
            if status.state in ("failed", "interface unavailable"):
                log.warning("%s; torch.compile works as without diode", status)
            for problem in status.problems:
                log.warning("%s is registered, but not with all models: %s", status.name, problem)
    except Exception as error:  # noqa: BLE001  # the boundary to a user's compile
        log.warning("diode cannot be registered: %s: %s", type(error).__name__, error)
