"""The contract of `diode.integration.BaseIntegration`: in nobody's way, and gone without a trace.

Torch is put back as it was after each check, so that what an integration leaves behind spoils no other test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, Final, get_args

from diode.errors import IntegrationError
from diode.integration.base_integration import BaseIntegration, IntegrationStatus, State
from diode.testing.conformance import Conformance, require

if TYPE_CHECKING:
    from diode.integration.torch_state import TorchState

_STEPS: Final = ("probe", "find_models", "engage", "enable_configs")
_ERRORS: Final = (RuntimeError, IntegrationError)
_SABOTAGE: Final = "an error that the check raises"
_AUTOTUNING: Final = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "max_autotune_gemm_search_space")
_DEFINITE: Final = tuple(state for state in get_args(State) if state != "waiting")


class IntegrationConformance(Conformance, ABC):
    """Derive from it, and make the integration that is to be checked, with whatever models it needs at hand."""

    expected_state: State = "registered"
    """What comes of it where the checks are run; most say nothing of an integration that is not registered."""

    @abstractmethod
    def make_integration(self) -> BaseIntegration:
        """A new one each time, of which nothing is engaged yet."""

    def test_it_has_a_name(self) -> None:
        name = getattr(self.make_integration(), "name", "")
        require(name and isinstance(name, str), f"its name is {name!r}: give it one, to be listed by")
        require(self.make_integration().name == name, "each has another name: its status could not be found")

    def test_it_comes_to_what_is_expected_here(self) -> None:
        with self._observed() as (integration, _):
            status = integration.integrate()
            require(status.state == self.expected_state, f"it is {status}, not {self.expected_state}")

    def test_its_status_is_definite(self) -> None:
        with self._observed() as (integration, _):
            status = integration.integrate()
            require(isinstance(status, IntegrationStatus), f"integrate() gives {status!r}, no IntegrationStatus")
            require(status.state in _DEFINITE, f"its state is {status.state!r}, not one of {', '.join(_DEFINITE)}")
            require(status.name == integration.name, f"its status is of {status.name!r}, not of {integration.name!r}")
            require(status.message, "its status says nothing of what happened")
            require(status.path or not status, "it is registered, and does not say by which interface")

    def test_probing_leaves_nothing_behind(self) -> None:
        with self._observed() as (integration, before):
            path = integration.probe()
            require(path and isinstance(path, str), f"probe() gives {path!r}, not the interface that answered")
            _require_unchanged(before, "probe()")

    def test_looking_for_models_changes_nothing(self) -> None:
        with self._observed() as (integration, before):
            integration.find_models()
            _require_unchanged(before, "find_models()")

    def test_a_step_that_fails_is_told_and_not_raised(self) -> None:
        for step, error in product(_STEPS, _ERRORS):
            with self._observed() as (integration, _):
                reached = _sabotage(integration, step, error)
                status = integration.integrate()
                require(not (reached and status), f"{step}() raised an error, and it says that it is registered")
                told = not reached or _SABOTAGE in status.message
                require(told, f"{step}() raised an error that its status says nothing of")

    def test_a_step_that_fails_leaves_nothing_behind(self) -> None:
        for step, error in product(_STEPS, _ERRORS):
            with self._observed() as (integration, before):
                _sabotage(integration, step, error)
                integration.integrate()
                _require_unchanged(before, f"an integration whose {step}() raised an error")

    def test_undoing_takes_everything_back(self) -> None:
        with self._observed() as (integration, before):
            integration.integrate()
            status = integration.undo()
            require(status.state == "off", f"undone it is {status}, not off")
            _require_unchanged(before, "undo()")

    def test_undoing_twice_or_too_early_does_no_harm(self) -> None:
        with self._observed() as (integration, before):
            status = integration.undo()
            require(status.state == "off", f"undone before it was integrated it is {status}, not off")
            integration.integrate()
            integration.undo()
            status = integration.undo()
            require(status.state == "off", f"undone twice it is {status}, not off")
            _require_unchanged(before, "undo()")

    def test_integrating_twice_is_as_integrating_once(self) -> None:
        with self._observed() as (integration, before):
            first = integration.integrate()
            second = integration.integrate()
            require(first.state == second.state, f"it is {first} once, and {second} twice integrated")
            integration.undo()
            _require_unchanged(before, "undo() after integrating twice")

    def test_it_can_be_integrated_again(self) -> None:
        with self._observed() as (integration, before):
            first = integration.integrate()
            integration.undo()
            again = integration.integrate()
            require(first == again, f"it is {first} first, and {again} after it was undone")
            integration.undo()
            _require_unchanged(before, "undo() of the second time")

    def test_it_switches_no_autotuning_on(self) -> None:
        with self._observed() as (integration, before):
            integration.integrate()
            found = before.changed_options(type(before).now()).keys() & set(_AUTOTUNING)
            require(not found, f"it changes {', '.join(sorted(found))}, which is the user's to decide")

    def test_the_options_that_it_changes_are_told(self) -> None:
        with self._observed() as (integration, before):
            told = integration.integrate().configs
            changed = before.changed_options(type(before).now())
            # An option whose value is no plain one names what was engaged, which `path` tells.
            plain = {name for name, option in changed.items() if isinstance(option.value, bool | int | float | str)}
            unsaid = sorted(plain - set(told))
            require(not unsaid, f"it changes {', '.join(unsaid)} and its status does not say so")
            idle = sorted(set(told) - changed.keys())
            require(not idle, f"its status says that it changed {', '.join(idle)}, which is as before")

    def test_a_handler_of_the_user_s_comes_back(self) -> None:
        from diode.integration.torch_state import handler_in_place, set_users_handler

        with self._observed() as (integration, _):
            own = set_users_handler()
            integration.integrate()
            integration.undo()
            found = handler_in_place()
            require(found is own, f"the user had set {own!r} for the choices, and has {found!r} after undo()")

    @contextmanager
    def _observed(self) -> Iterator[tuple[BaseIntegration, TorchState]]:
        """An integration of its own, and torch as it is before that was made."""
        from diode.integration.torch_state import torch_left_as_it_was

        with torch_left_as_it_was() as before:
            integration = self.make_integration()
            try:
                yield integration, before
            finally:
                integration.undo()


def _sabotage(integration: BaseIntegration, step: str, error: type[Exception]) -> list[str]:
    """Has a step do its work and then raise. What it gives holds the step once that happened."""
    work: Callable[..., object] = getattr(integration, step)
    reached: list[str] = []

    def failing(*arguments: Any) -> None:
        work(*arguments)
        reached.append(step)
        raise error(_SABOTAGE)

    setattr(integration, step, failing)
    return reached


def _require_unchanged(before: TorchState, what: str) -> None:
    differences = before.differences(type(before).now())
    require(not differences, f"{what} leaves torch changed: {'; '.join(differences)}")
