"""The clock of a GPU while it works: times are only as comparable as it is steady."""

from __future__ import annotations

import torch


class ClockReader:
    """The SM clock in MHz, where NVML can be had."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._available = True
        self.read()

    def read(self) -> int | None:
        if not self._available:
            return None
        try:
            return int(torch.cuda.clock_rate(self._device)) or None
        except (ModuleNotFoundError, RuntimeError):
            self._available = False
            return None
