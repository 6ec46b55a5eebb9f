"""Hears of every autotuning of the process and hands on what was measured. Imports Inductor only when entered."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from diode.types import Environment, Hardware

if TYPE_CHECKING:
    import torch
    from torch._inductor.ir import ChoiceCaller

    from diode.integration.feedback import AutotuneEvent

log = logging.getLogger(__name__)


class AutotuningListener:
    """While entered, gives `record` each autotuning that really ran kernels, from whichever thread.

    The user's compile never fails by this: an error here, or in `record`, loses one event, is counted in `errors`, and
    logged once.
    """

    def __init__(
        self,
        record: Callable[[AutotuneEvent, Environment], None],
        *,
        hardware: Hardware | None = None,
        command: str = "",
    ) -> None:
        """`hardware` stands for the devices of its type in place of what this machine says of them."""
        self._record = record
        self._hardware = hardware
        self._command = command
        self._lock = threading.Lock()
        self._registration: ExitStack | None = None
        self._environments: dict[torch.device, Environment] = {}
        self._skipped: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    @property
    def entered(self) -> bool:
        return self._registration is not None

    @property
    def skipped(self) -> dict[str, int]:
        """The number of autotunings that hold nothing new, by reason."""
        with self._lock:
            return dict(self._skipped)

    @property
    def errors(self) -> dict[str, int]:
        """The number of events lost to an error of ours, by error."""
        with self._lock:
            return dict(self._errors)

    def __enter__(self) -> AutotuningListener:
        from diode.integration.feedback import autotuning_observed

        with ExitStack() as stack:
            stack.enter_context(autotuning_observed(self._hear, self._see_choices))
            self._registration = stack.pop_all()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        registration, self._registration = self._registration, None
        if registration is not None:
            registration.close()

    def _hear(
        self,
        timings: Mapping[ChoiceCaller, float],
        name: str,
        input_nodes: Sequence[Any],
        choices: Sequence[ChoiceCaller],
        *_rest: object,
    ) -> None:
        """A feedback saver; torch passes it five arguments, from 2.11 on six."""
        with self._compile_protected(f"an autotuning of {name}"):
            from diode.integration.feedback import read_event, why_not_measured

            reason = why_not_measured(timings, choices)
            if reason is not None:
                with self._lock:
                    self._skipped[reason] += 1
                return
            event = read_event(timings, name, input_nodes, choices)
            self._record(event, self._environment(event.device))

    def _see_choices(self, choices: list[ChoiceCaller]) -> list[ChoiceCaller]:
        """A preprocessing function that changes nothing."""
        with self._compile_protected("the choices of an op"):
            from diode.integration.feedback import remember_offered

            remember_offered(choices)
        return choices

    def _environment(self, device: torch.device) -> Environment:
        from diode.integration.device import current_environment, current_hardware

        known = self._environments.get(device)
        if known is None:
            given = self._hardware
            hardware = given if given is not None and given.device_type == device.type else current_hardware(device)
            known = self._environments.setdefault(device, current_environment(hardware, self._command))
        return known

    @contextmanager
    def _compile_protected(self, what: str) -> Iterator[None]:
        """The boundary to the user's compile: no error of ours crosses it."""
        try:
            yield
        except Exception as error:  # whatever it is, it must not end the compile
            told = f"{type(error).__name__}: {error}"
            with self._lock:
                first = not self._errors
                self._errors[told] += 1
            log.debug("recording %s", what, exc_info=error)
            if first:
                log.warning(
                    "diode could not record %s (%s); the compile goes on, and further errors are only counted",
                    what,
                    told,
                )
