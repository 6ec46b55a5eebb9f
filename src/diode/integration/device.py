"""The device, driver and software that a measurement is taken with, as records."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import torch

import diode
from diode.errors import UnsupportedError
from diode.settings import named_commit
from diode.types import Environment, Hardware

_HOPPER_SXM: Final = (
    ("bfloat16", 989.4),
    ("float16", 989.4),
    ("float32", 66.9),
    ("float8_e4m3fn", 1978.9),
    ("int8", 1978.9),
    ("tf32", 494.7),
)
_HOPPER_PCIE: Final = (
    ("bfloat16", 756.0),
    ("float16", 756.0),
    ("float32", 51.2),
    ("float8_e4m3fn", 1513.0),
    ("int8", 1513.0),
    ("tf32", 378.0),
)
_AMPERE_A100: Final = (("bfloat16", 312.0), ("float16", 312.0), ("float32", 19.5), ("int8", 624.0), ("tf32", 156.0))
_PEAK_TFLOPS: Final[dict[str, tuple[tuple[str, float], ...]]] = {
    "NVIDIA H200": _HOPPER_SXM,
    "NVIDIA H100 80GB HBM3": _HOPPER_SXM,
    "NVIDIA H100 PCIe": _HOPPER_PCIE,
    "NVIDIA A100-SXM4-80GB": _AMPERE_A100,
    "NVIDIA A100-SXM4-40GB": _AMPERE_A100,
    "NVIDIA A100 80GB PCIe": _AMPERE_A100,
    "NVIDIA A100-PCIE-40GB": _AMPERE_A100,
}
"""Dense rates of the vendor's data sheets by the name the driver gives; no driver tells them."""


def current_hardware(device: str | torch.device = "cuda") -> Hardware:
    """The facts of a device of this machine: `cuda` (the current one), `cuda:1`, `cpu`."""
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise UnsupportedError(f"{device!r} names no device: use 'cpu', 'cuda' or 'cuda:N'") from error
    if wanted.type == "cpu":
        return _cpu()
    if wanted.type == "cuda":
        return _cuda(wanted)
    raise UnsupportedError(f"diode does not know devices of type {wanted.type!r}: use 'cpu', 'cuda' or 'cuda:N'")


def current_environment(hardware: Hardware, command: str = "") -> Environment:
    """Where and by what a measurement is taken now, on `hardware`."""
    return Environment(
        hardware=hardware,
        torch=str(torch.__version__),
        triton=triton_version(),
        driver=_driver_version() if hardware.device_type == "cuda" else "",
        python=platform.python_version(),
        diode=diode.__version__,
        commit=running_commit(),
        command=command,
        taken=datetime.now(timezone.utc).date().isoformat(),
        template_hashes=template_hashes(),
    )


def running_commit() -> str:
    """The commit of diode itself: as `DIODE_COMMIT` has it, or of the checkout that it runs from."""
    return named_commit() or _commit(Path(diode.__file__).resolve().parents[2])


def _cuda(device: torch.device) -> Hardware:
    if not torch.cuda.is_available():
        raise UnsupportedError(
            "no CUDA device can be used here: check the driver and that this torch is a CUDA build, or use 'cpu'"
        )
    named: int | None = device.index
    index = torch.cuda.current_device() if named is None else named
    if index >= torch.cuda.device_count():
        raise UnsupportedError(f"there is no device cuda:{index}: this machine has {torch.cuda.device_count()}")
    facts: Any = torch.cuda.get_device_properties(index)  # torch's stubs know only half of its fields
    return Hardware(
        name=facts.name,
        device_type="cuda",
        capability=(facts.major, facts.minor),
        sm_count=facts.multi_processor_count,
        shared_memory_per_sm=facts.shared_memory_per_multiprocessor,
        shared_memory_per_block=facts.shared_memory_per_block_optin,
        registers_per_sm=facts.regs_per_multiprocessor,
        max_threads_per_sm=facts.max_threads_per_multi_processor,
        warp_size=facts.warp_size,
        l2_bytes=facts.L2_cache_size,
        memory_bytes=facts.total_memory,
        memory_bandwidth_gbs=_memory_bandwidth_gbs(facts),
        peak_tflops=_PEAK_TFLOPS.get(facts.name, ()),
    )


def _memory_bandwidth_gbs(facts: Any) -> float | None:
    """From the memory clock in kHz, of which both edges carry data, and the width of the bus in bits."""
    clock_khz, width_bits = getattr(facts, "memory_clock_rate", 0), getattr(facts, "memory_bus_width", 0)
    return 2 * clock_khz * width_bits / 8 / 1e6 or None


def _cpu() -> Hardware:
    return Hardware(
        name=_cpu_name(),
        device_type="cpu",
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(told, "") or platform.processor() or platform.machine() or "unknown CPU"


def triton_version() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def _driver_version() -> str:
    """The version of NVIDIA's driver; what torch knows is only the CUDA version that the driver supports."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1" if os.name == "posix" else "nvml.dll")
    except OSError:
        return ""
    version = ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() != 0:
        return ""
    try:
        failed = nvml.nvmlSystemGetDriverVersion(version, len(version))
        return "" if failed else version.value.decode()
    finally:
        nvml.nvmlShutdown()


def _commit(root: Path) -> str:
    """The commit of the checkout that this package runs from, `-dirty` if it differs; empty where it is installed."""
    if not (root / ".git").exists():
        return ""
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()


def template_hashes() -> tuple[tuple[str, str], ...]:
    """The hash of each Triton template that this torch has: another hash under the same uid is another kernel."""
    try:
        import torch._inductor.compile_fx  # noqa: F401  # registers all templates, those of its graph passes too
        from torch._inductor.select_algorithm import TritonTemplate
    except ImportError:
        return ()
    templates = TritonTemplate.all_templates.values()
    return tuple(sorted((template.uid, template.src_hash) for template in templates if template.src_hash))
