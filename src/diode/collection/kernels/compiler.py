"""Compiles kernel sources with Triton, on any machine: no GPU and no driver is needed."""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from diode.collection.kernels.pattern import KernelSource
from diode.errors import DiodeError
from diode.types import Hardware

_PRELUDE = """\
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

"""


class KernelCompileError(DiodeError):
    """Triton refused a kernel: a label for this choice, not a fault of the sweep."""


class CompiledKernel(msgspec.Struct, frozen=True):
    """A binary with what is needed to load and launch it."""

    key: str
    entry: str
    binary: bytes
    shared_bytes: int
    num_warps: int
    metadata: dict[str, Any]
    """What Triton's launcher reads."""


@dataclass(frozen=True)
class CompileTarget:
    """What code is generated for."""

    backend: str
    arch: int
    warp_size: int

    @classmethod
    def of(cls, hardware: Hardware) -> CompileTarget:
        major, minor = hardware.capability or (0, 0)
        return cls(hardware.device_type, major * 10 + minor, hardware.warp_size or 32)


def kernel_key(source: KernelSource, target: CompileTarget) -> str:
    """Equal keys are equal binaries: source, options, target and compiler version."""
    described = repr((source, target, _triton_version()))
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def compile_kernel(source: KernelSource, target: CompileTarget) -> CompiledKernel:
    """Raises `KernelCompileError` with Triton's reason where the kernel cannot be built."""
    key = kernel_key(source, target)
    compiled = triton_compile(source, target, key)
    metadata = compiled.metadata._asdict()
    launcher_facts = {name: value for name, value in metadata.items() if isinstance(value, int | bool | str | None)}
    return CompiledKernel(
        key=key,
        entry=metadata["name"],
        binary=compiled.kernel,
        shared_bytes=metadata["shared"],
        num_warps=metadata["num_warps"],
        metadata=launcher_facts,
    )


def triton_compile(source: KernelSource, target: CompileTarget, key: str) -> Any:
    """Triton's own compiled kernel, with the options that Inductor compiles its templates with."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = _load(source, key)
    tree = ASTSource(
        fn=function,
        signature=dict(source.signature),
        constexprs={},
        attrs={(position,): [["tt.divisibility", 16]] for position in source.aligned},
    )
    options = {
        "num_warps": source.num_warps,
        "num_stages": source.num_stages,
        "debug": True,
        "sanitize_overflow": False,
    }
    cache = Path(tempfile.mkdtemp(prefix="diode-triton-"))
    try:
        with triton.knobs.cache.scope(), triton.knobs.compilation.scope():
            triton.knobs.cache.dir = str(cache)
            triton.knobs.compilation.disable_line_info = True  # a third of the size, the same instructions
            return triton.compile(
                tree, target=GPUTarget(target.backend, target.arch, target.warp_size), options=options
            )
    except Exception as error:
        # Triton, MLIR, LLVM and the assembler each raise their own kinds.
        raise KernelCompileError(f"{source.entry}: {_reason(error)[:400]}") from error
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _reason(error: Exception) -> str:
    """What lies at the bottom of a chain of errors, without the lines of the kernel that Triton quotes before it."""
    from triton.compiler.errors import CompilationError

    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    said = root.error_message if isinstance(root, CompilationError) else None
    return (said or str(root)).strip() or type(root).__name__


def _load(source: KernelSource, key: str) -> Any:
    """The jitted function; Triton reads its source back, so the module needs a file name that answers with lines."""
    text = _PRELUDE + source.text
    name = f"diode_kernel_{key}"
    filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    try:
        exec(compile(text, filename, "exec"), module.__dict__)  # Inductor's own text
        return getattr(module, source.entry)
    finally:
        del sys.modules[name]
        del linecache.cache[filename]


@lru_cache(maxsize=1)
def _triton_version() -> str:
    if importlib.util.find_spec("triton") is None:
        return "none"
    import triton

    return str(triton.__version__)
