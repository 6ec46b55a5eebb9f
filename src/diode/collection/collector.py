"""Collects what torch.compile measures anyway."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from diode.errors import CollectionError, UnsupportedError
from diode.types import Dataset, DatasetBuilder, Environment, Failure, Hardware, Measurement, Problem

if TYPE_CHECKING:
    import torch
    from torch._inductor.ir import ChoiceCaller

    from diode.integration.feedback import AutotuneEvent

log = logging.getLogger(__name__)


class MatmulDatasetCollector:
    """While entered, records every autotuning that `torch.compile` runs in this process, on whichever thread.

    All ops and all choices are recorded, library kernels and failures among them. What torch only remembers is not: a
    graph from its FX cache brings no autotuning at all, and events with times from its autotuning cache are counted in
    `skipped`. Compile inside `torch._inductor.utils.fresh_cache()` to have everything measured. Inductor tells nobody
    where it has a single choice, in deterministic mode, with pipelined autotuning, and when a subprocess compiles.

    The user's compile never fails by this: an error here loses one event, is counted in `errors`, and logged once.
    """

    def __init__(self, hardware: Hardware | None = None, *, command: str = "") -> None:
        """`hardware` stands for the devices of its type in place of what this machine says of them."""
        self._hardware = hardware
        self._command = command
        self._lock = threading.Lock()
        self._registration: ExitStack | None = None
        self._environments: dict[torch.device, Environment] = {}
        self._builder = DatasetBuilder()
        self._measurements = 0
        self._problems: set[Problem] = set()
        self._events = 0
        self._skipped: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    def __enter__(self) -> MatmulDatasetCollector:
        if self._registration is not None:
            raise CollectionError("this MatmulDatasetCollector is already entered: make another one to nest them")
        try:
            from diode.integration.feedback import autotuning_observed
        except ImportError as error:
            raise UnsupportedError(
                f"MatmulDatasetCollector listens to TorchInductor, which cannot be imported here ({error}): "
                "install torch 2.10 or later with it"
            ) from error
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

    def dataset(self) -> Dataset:
        """All that was measured so far."""
        with self._lock:
            return self._builder.build()

    def __len__(self) -> int:
        """The number of measurements, failures among them."""
        return self._measurements

    @property
    def problems_seen(self) -> int:
        """The number of distinct problems with at least one measurement."""
        return len(self._problems)

    @property
    def events(self) -> int:
        """The number of autotunings that were recorded."""
        return self._events

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
            if reason is None:
                self._record(read_event(timings, name, input_nodes, choices))
            else:
                self._skip(reason)

    def _see_choices(self, choices: list[ChoiceCaller]) -> list[ChoiceCaller]:
        """A preprocessing function that changes nothing."""
        with self._compile_protected("the choices of an op"):
            from diode.integration.feedback import remember_offered

            remember_offered(choices)
        return choices

    def _record(self, event: AutotuneEvent) -> None:
        environment = self._environment(event.device)
        measurements = [
            Measurement(event.problem, choice, environment, method, failure=outcome)
            if isinstance(outcome, Failure)
            else Measurement(event.problem, choice, environment, method, timing=outcome)
            for choice, method, outcome in event.outcomes
        ]
        with self._lock:
            if self._registration is None:
                return
            for measurement in measurements:
                self._builder.add(measurement)
            self._measurements += len(measurements)
            self._events += 1
            if measurements:
                self._problems.add(event.problem)

    def _environment(self, device: torch.device) -> Environment:
        from diode.integration.device import current_environment, current_hardware

        known = self._environments.get(device)
        if known is None:
            given = self._hardware
            hardware = given if given is not None and given.device_type == device.type else current_hardware(device)
            known = self._environments.setdefault(device, current_environment(hardware, self._command))
        return known

    def _skip(self, reason: str) -> None:
        with self._lock:
            self._skipped[reason] += 1

    @contextmanager
    def _compile_protected(self, what: str) -> Iterator[None]:
        """The boundary to the user's compile: no error of ours crosses it."""
        try:
            yield
        except Exception as error:  # whatever it is, it must not end the compile
            with self._lock:
                first = not self._errors
                self._errors[f"{type(error).__name__}: {error}"] += 1
            if first:
                log.warning(
                    "diode could not record %s; the compile goes on, and further errors are only counted",
                    what,
                    exc_info=error,
                )
