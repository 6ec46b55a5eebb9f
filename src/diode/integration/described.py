"""Makes Inductor lower for a GPU that is described by a record, whether or not this machine has one.

Planning and rendering then need no CUDA context: they run in as many processes as there are cores, on machines without
a GPU, and for GPUs that are elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._inductor.utils as inductor_utils
import torch._subclasses.fake_tensor as fake_tensor
import torch.utils._triton as triton_support
from torch._inductor.runtime.hints import DeviceProperties

from diode.errors import UnsupportedError
from diode.types import Hardware


@contextmanager
def described_gpu(hardware: Hardware, *others: Hardware) -> Iterator[None]:
    """Inside, Inductor sees `hardware` as CUDA device 0, the current one, and others behind it. They run nothing."""
    described = [_DescribedDevice(number, record) for number, record in enumerate((hardware, *others))]
    first = described[0]

    def device(which: Any = None) -> _DescribedDevice:
        index = which if isinstance(which, int) or which is None else torch.device(which).index
        return described[index or 0]

    replacements: list[tuple[object, str, object]] = [
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "device_count", lambda: len(described)),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "get_device_capability", lambda which=None: device(which).capability),
        (torch.cuda, "get_device_properties", lambda which=None: device(which).facts),
        (torch.cuda, "get_device_name", lambda which=None: device(which).facts.name),
        (fake_tensor, "init_gpu_context", lambda *_: None),
        (inductor_utils, "get_max_num_sms", lambda: hardware.sm_count),
        (DeviceProperties, "create", classmethod(lambda cls, which: device(which).properties)),
    ]
    with ExitStack() as stack:
        for owner, name, replacement in replacements:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(_described_triton_target(first))
        _forget_answers()
        stack.callback(_forget_answers)
        yield


class _DescribedDevice:
    """The answers of one device to torch and to Inductor."""

    def __init__(self, number: int, hardware: Hardware) -> None:
        self.capability, self.facts = _device_facts(hardware)
        self.properties = DeviceProperties(
            type="cuda",
            index=number,
            multi_processor_count=hardware.sm_count or 0,
            cc=self.capability[0] * 10 + self.capability[1],
            major=self.capability[0],
            regs_per_multiprocessor=hardware.registers_per_sm,
            max_threads_per_multi_processor=hardware.max_threads_per_sm,
            max_threads_per_block=1024,
            warp_size=hardware.warp_size,
        )


def _device_facts(hardware: Hardware) -> tuple[tuple[int, int], SimpleNamespace]:
    missing = [
        name
        for name in ("capability", "sm_count", "shared_memory_per_block", "registers_per_sm", "max_threads_per_sm")
        if getattr(hardware, name) is None
    ]
    if hardware.device_type != "cuda" or missing or hardware.capability is None:
        raise UnsupportedError(
            f"cannot lower for {hardware.name!r}: it must be a CUDA device with {', '.join(missing) or 'a capability'}"
        )
    properties = SimpleNamespace(
        name=hardware.name,
        major=hardware.capability[0],
        minor=hardware.capability[1],
        multi_processor_count=hardware.sm_count,
        shared_memory_per_block_optin=hardware.shared_memory_per_block,
        shared_memory_per_multiprocessor=hardware.shared_memory_per_sm,
        regs_per_multiprocessor=hardware.registers_per_sm,
        max_threads_per_multi_processor=hardware.max_threads_per_sm,
        warp_size=hardware.warp_size,
        L2_cache_size=hardware.l2_bytes,
        total_memory=hardware.memory_bytes,
        gcnArchName="",
    )
    return hardware.capability, properties


class _DescribedDriver:
    """What Triton and Inductor ask a driver while they only generate and compile code."""

    def __init__(self, device: _DescribedDevice) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", device.properties.cc, device.facts.warp_size or 32)
        facts = {"max_shared_mem": device.facts.shared_memory_per_block_optin}
        self.utils = SimpleNamespace(get_device_properties=lambda *_: facts)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def _described_triton_target(device: _DescribedDevice) -> Iterator[None]:
    from triton.runtime.driver import driver

    before = driver._active
    driver.set_active(_DescribedDriver(device))
    try:
        yield
    finally:
        driver._active = before


def _forget_answers() -> None:
    """Torch remembers what the device could do; the answers of one device must not serve another."""
    for owner in (triton_support, inductor_utils):
        for value in list(vars(owner).values()):
            if isinstance(value, functools._lru_cache_wrapper) and _asks_the_device(value):
                value.cache_clear()


def _asks_the_device(function: Callable[..., object]) -> bool:
    code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
    return code is not None and ("cuda" in code.co_names or code.co_name.startswith("has_triton"))
