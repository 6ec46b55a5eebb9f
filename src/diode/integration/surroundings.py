"""The devices and the software that this process compiles with."""

from __future__ import annotations

from functools import cache

import torch

from diode.integration.device import current_hardware, template_hashes, triton_version
from diode.integration.model_source import Software
from diode.types import Hardware


def hardware_of(device: str) -> Hardware:
    # What is asked of a CPU is read from files; what is asked of a GPU may be another one the next time.
    return _cpu() if device.startswith("cpu") else current_hardware(device)


def device_name() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return torch.cuda.get_device_name(torch.cuda.current_device())


@cache
def software() -> Software:
    return Software(str(torch.__version__), triton_version(), template_hashes())


@cache
def _cpu() -> Hardware:
    return current_hardware("cpu")
