"""Loads compiled kernels and launches them through Triton's own launcher."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.compiler.compiler import make_backend
from triton.runtime.driver import driver

from diode.collection.kernels.compiler import CompiledKernel
from diode.errors import DiodeError


class KernelLoadError(DiodeError):
    """The device refuses a binary: too much shared memory, too many registers."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KernelLoader:
    """Keeps loaded binaries by key, and one launcher per signature."""

    def __init__(self, device: torch.device, shared_memory_limit: int) -> None:
        self._device = device
        self._limit = shared_memory_limit
        self._backend = make_backend(driver.active.get_current_target())
        self._loaded: dict[str, Any] = {}
        self._launchers: dict[tuple[object, ...], Any] = {}
        self._scratch = torch.empty(1 << 20, dtype=torch.uint8, device=device)
        triton.set_allocator(self._allocate)

    def launch(
        self,
        kernel: CompiledKernel,
        signature: tuple[tuple[str, str], ...],
        grid: tuple[int, int, int],
        args: tuple[int, ...],
    ) -> Callable[[], object]:
        """A callable that enqueues the kernel; pointers are given as integers."""
        if kernel.shared_bytes > self._limit:
            raise KernelLoadError("shared_memory", f"{kernel.shared_bytes} bytes, limit {self._limit}")
        metadata = SimpleNamespace(**kernel.metadata)
        function = self._loaded.get(kernel.key)
        if function is None:
            function = self._loaded[kernel.key] = self._load(kernel)
        launcher = self._launcher(signature, metadata)
        stream = driver.active.get_current_stream(self._device.index or 0)
        packed = self._backend.pack_metadata(metadata)
        return partial(launcher, *grid, stream, function, packed, None, None, None, *args)

    def forget(self) -> None:
        """Drops the binaries of a family that is done."""
        self._loaded.clear()

    def _load(self, kernel: CompiledKernel) -> Any:
        _, function, _, _, max_threads = driver.active.utils.load_binary(
            kernel.entry, kernel.binary, kernel.shared_bytes, self._device.index or 0
        )
        threads = kernel.num_warps * kernel.metadata["warp_size"]
        if threads > max_threads:
            raise KernelLoadError("registers", f"{threads} threads, at most {max_threads} with its registers")
        return function

    def _launcher(self, signature: tuple[tuple[str, str], ...], metadata: SimpleNamespace) -> Any:
        key = (signature, metadata.global_scratch_size, metadata.num_ctas)
        launcher = self._launchers.get(key)
        if launcher is None:
            names = [name for name, _ in signature]
            source = SimpleNamespace(constants={}, signature=dict(signature), fn=SimpleNamespace(arg_names=names))
            launcher = self._launchers[key] = driver.active.launcher_cls(source, metadata)
        return launcher

    def _allocate(self, size: int, alignment: int, stream: int | None) -> torch.Tensor:
        if size > self._scratch.numel():
            self._scratch = torch.empty(2 * size, dtype=torch.uint8, device=self._device)
        return self._scratch
