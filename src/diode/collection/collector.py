"""Collects what torch.compile measures anyway."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from diode.errors import CollectionError, UnsupportedError
from diode.integration.listener import AutotuningListener
from diode.types import Dataset, DatasetBuilder, Environment, Failure, Hardware, Measurement, Problem

if TYPE_CHECKING:
    from diode.integration.feedback import AutotuneEvent


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
        self._listener = AutotuningListener(self._record, hardware=hardware, command=command)
        self._lock = threading.Lock()
        self._builder = DatasetBuilder()
        self._measurements = 0
        self._problems: set[Problem] = set()
        self._events = 0

    def __enter__(self) -> MatmulDatasetCollector:
        if self._listener.entered:
            raise CollectionError("this MatmulDatasetCollector is already entered: make another one to nest them")
        try:
            self._listener.__enter__()
        except ImportError as error:
            raise UnsupportedError(
                f"MatmulDatasetCollector listens to TorchInductor, which cannot be imported here ({error}): "
                "install torch 2.10 or later with it"
            ) from error
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.__exit__(error_type, error, traceback)

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
        return self._listener.skipped

    @property
    def errors(self) -> dict[str, int]:
        """The number of events lost to an error of ours, by error."""
        return self._listener.errors

    def _record(self, event: AutotuneEvent, environment: Environment) -> None:
        measurements = [
            Measurement(event.problem, choice, environment, method, failure=outcome)
            if isinstance(outcome, Failure)
            else Measurement(event.problem, choice, environment, method, timing=outcome)
            for choice, method, outcome in event.outcomes
        ]
        with self._lock:
            if not self._listener.entered:
                return
            for measurement in measurements:
                self._builder.add(measurement)
            self._measurements += len(measurements)
            self._events += 1
            if measurements:
                self._problems.add(event.problem)
