"""The frame of every integration: try whether torch has the interface, find models for it, engage them, undo it all."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from diode.errors import DiodeError, IntegrationError
from diode.model.registry import ModelPointer

__all__ = ["BaseIntegration", "IntegrationRegistry", "IntegrationStatus", "ModelPointer", "State"]

log = logging.getLogger("diode")

State = Literal["waiting", "registered", "interface unavailable", "no model", "failed", "off"]
"""`waiting`: not tried yet. `off`: undone by `diode.disable()`."""


@dataclass(frozen=True)
class IntegrationStatus:
    """What came of an integration; true if it is registered."""

    name: str
    state: State = "waiting"
    message: str = ""
    """What happened, and where something is missing what to do."""
    path: str = ""
    """By which of torch's interfaces it is registered."""
    models: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    """The options of torch that were switched on for the models."""
    problems: tuple[str, ...] = ()
    """Models that could not be used beside those that are, each with the reason."""

    def __bool__(self) -> bool:
        return self.state == "registered"

    def __str__(self) -> str:
        told = f"{self.name}: {self.state}" + (f" ({self.message})" if self.message else "")
        return "; not used: ".join((told, *self.problems))


class BaseIntegration(ABC):
    """Joins models to one interface of torch. `integrate` and `undo` never raise: they tell what happened."""

    name: str
    """By which it is listed."""
    needs_model: bool = True
    """Without a model, it is not registered."""

    @abstractmethod
    def probe(self) -> str:
        """Registers a dummy to see whether the interface answers, and takes it back.

        Gives the name of the interface that answered, or raises an `IntegrationError` that says what is missing.
        """

    @abstractmethod
    def find_models(self) -> Sequence[ModelPointer]:
        """The models for this interface, not loaded yet."""

    @abstractmethod
    def engage(self, models: Sequence[ModelPointer]) -> None:
        """Registers with torch what will ask these models."""

    def enable_configs(self, models: Sequence[ModelPointer]) -> tuple[str, ...]:
        """Switches on the options of torch without which the models cannot choose all they know; tells which."""
        return ()

    @abstractmethod
    def disengage(self) -> None:
        """Undoes `engage` and `enable_configs`; harmless where nothing was engaged."""

    def integrate(self) -> IntegrationStatus:
        try:
            return self._integrate()
        except IntegrationError as error:
            self._undo_quietly()
            return IntegrationStatus(self.name, "interface unavailable", str(error))
        except DiodeError as error:
            self._undo_quietly()
            return IntegrationStatus(self.name, "failed", str(error))
        except Exception as error:  # noqa: BLE001  # anybody's code; `import diode` must not fail by it
            self._undo_quietly()
            return IntegrationStatus(self.name, "failed", f"{type(error).__name__}: {error}")

    def undo(self) -> IntegrationStatus:
        try:
            self.disengage()
        except Exception as error:  # noqa: BLE001  # the others are to be undone all the same
            return IntegrationStatus(self.name, "failed", f"undoing it: {type(error).__name__}: {error}")
        return IntegrationStatus(self.name, "off")

    def _integrate(self) -> IntegrationStatus:
        path = self.probe()
        models = self.find_models()
        if not models and self.needs_model:
            return IntegrationStatus(self.name, "no model", self.why_no_model(), path)
        self.engage(models)
        configs = self.enable_configs(models)
        names = tuple(str(pointer.card) for pointer in models)
        message = f"by {path}, with {', '.join(names)}" if names else f"by {path}; {self.why_no_model()}"
        return IntegrationStatus(self.name, "registered", message, path, names, configs, tuple(self.problems()))

    def problems(self) -> Sequence[str]:
        """Why some of the models that `find_models` came across cannot be used."""
        return ()

    def why_no_model(self) -> str:
        return "no model is at hand: install a package of models"

    def _undo_quietly(self) -> None:
        try:
            self.disengage()
        except Exception:  # the first error is the one to tell
            log.debug("undoing %s", self.name, exc_info=True)


@dataclass
class _Entry:
    integration: BaseIntegration
    order: int
    status: IntegrationStatus


@dataclass
class IntegrationRegistry:
    """Integrations in the order in which they run, and what came of each."""

    _entries: dict[str, _Entry] = field(default_factory=dict)
    _reports: dict[str, IntegrationStatus] = field(default_factory=dict)
    """Of those that could not even be made."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def register(self, integration: BaseIntegration, execute_order: int = 1) -> None:
        """The lower the order, the earlier it runs. One of the same name is undone and replaced."""
        if not isinstance(integration, BaseIntegration):
            raise IntegrationError(f"{integration!r} is no integration: derive it from BaseIntegration")
        with self._lock:
            earlier = self._entries.get(integration.name)
            if earlier is not None and earlier.status:
                earlier.integration.undo()
            self._entries[integration.name] = _Entry(integration, execute_order, IntegrationStatus(integration.name))
            self._reports.pop(integration.name, None)

    def report(self, name: str, message: str) -> None:
        """Lists an integration that could not be made."""
        self._reports[name] = IntegrationStatus(name, "failed", message)

    def integrate_all(self) -> dict[str, IntegrationStatus]:
        """Runs those that are not registered yet; one that fails keeps no other from running."""
        with self._lock:
            for entry in sorted(self._entries.values(), key=lambda entry: entry.order):
                if not entry.status:
                    entry.status = entry.integration.integrate()
            return self.status()

    def integrate(self, name: str) -> IntegrationStatus:
        """Runs one, if it is not registered yet."""
        with self._lock:
            entry = self._entries[name]
            if not entry.status:
                entry.status = entry.integration.integrate()
            return entry.status

    def undo_all(self) -> dict[str, IntegrationStatus]:
        """Undoes what is registered, the last first."""
        with self._lock:
            for entry in sorted(self._entries.values(), key=lambda entry: entry.order, reverse=True):
                if entry.status:
                    entry.status = entry.integration.undo()
            return self.status()

    def status(self) -> dict[str, IntegrationStatus]:
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: entry.order)
            return {entry.integration.name: entry.status for entry in entries} | self._reports

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def forget(self, name: str) -> None:
        """Undoes an integration and no longer lists it."""
        with self._lock:
            entry = self._entries.pop(name, None)
            self._reports.pop(name, None)
            if entry is not None and entry.status:
                entry.integration.undo()

    def get(self, name: str) -> BaseIntegration | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.integration
