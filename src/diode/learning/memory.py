"""What a handler remembers of the store: read once, when it is first asked, and the same for as long as it lives.

A decision that depended on what was measured a minute ago would make torch's caches stale, and ranks of one job
different. So the store as it was found is part of what the handler says that it is, and what this process adds to it
serves the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable, least_us
from diode.learning.answers import Answer, answer
from diode.learning.correction import Correction, fit_correction
from diode.learning.measured import MeasuredHere, measured_here
from diode.learning.store import Store
from diode.model.prediction import Prediction
from diode.model.wrapper import ModelWrapper
from diode.types import Environment, Hardware, MMShape


@dataclass(frozen=True)
class Knowledge:
    """What the store says on one device, with one model."""

    measured: Mapping[MMShape, MeasuredHere] = field(default_factory=dict)
    correction: Correction | None = None

    def corrected(self, hardware: Hardware, problem: MMShape, table: ChoiceTable, prediction: Prediction) -> Prediction:
        """The prediction itself where nothing was learned."""
        return prediction if self.correction is None else self.correction.of(hardware, problem, table, prediction)

    def answer(
        self,
        hardware: Hardware,
        problem: MMShape,
        table: ChoiceTable,
        prediction: Prediction,
        may_be: NDArray[np.bool_],
        library_saving: float = 0.0,
    ) -> Answer | None:
        measured = self.measured.get(problem)
        if measured is None:
            return None
        return answer(measured, table, prediction, may_be, least_us(hardware, problem), library_saving)


NOTHING_KNOWN = Knowledge()


class Memory:
    """A store, or nothing where there is none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._knowledge: dict[tuple[Hardware, str], Knowledge] = {}

    @property
    def digest(self) -> str:
        """Equal for equal contents; empty where nothing is known."""
        return self.store.digest

    @property
    def store(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = Store() if self._folder is None else Store.read(self._folder)
            return self._store

    def of(self, here: Environment, model: ModelWrapper) -> Knowledge:
        """`here` is the device and the software that kernels are chosen for."""
        store = self.store
        if not store.autotunings:
            return NOTHING_KNOWN
        key = (here.hardware, model.digest)
        with self._lock:
            known = self._knowledge.get(key)
            if known is None:
                measured = measured_here(store.autotunings, here)
                correction = fit_correction(model.model, here.hardware, measured.values())
                known = self._knowledge[key] = Knowledge(measured, correction)
            return known
