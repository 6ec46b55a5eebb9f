"""Runs what Inductor generated for a GPU, kernels and wrapper, in Triton's interpreter: `interpreted.py WORK`.

A program, for Triton must be imported with TRITON_INTERPRET=1. WORK holds a list of pairs (source, arguments), and gets
the list of results in their place.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import torch
import triton
from torch._C._dynamo import guards
from torch._inductor.select_algorithm import extern_kernels
from triton.runtime import interpreter

_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str='cuda'\)$", re.M | re.S)
_WRAPPER = re.compile(r"^class Runner:.*?^call = runner\.call$", re.M | re.S)
_PRELUDE = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
"""
_TRANSLATED = {"rk.to(tl.int32)": "rk", " & (idx_q < BATCH)": ""}
"""The interpreter counts in Python's numbers, and takes no mask that compares two of them; no batch here needs it."""
_BLOCK = 64


_patch_lang_tensor = interpreter._patch_lang_tensor


def _with_indices(tensor, scope):
    """Up to 3.6 Triton has numpy make a number of an array of one element, which numpy 2.4 refuses."""
    _patch_lang_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _with_indices


class Kernel:
    """Stands where the wrapper has a compiled kernel."""

    def __init__(self, name: str, source: str, folder: Path) -> None:
        text = source[source.index("@triton.jit") :]
        for said, understood in _TRANSLATED.items():
            text = text.replace(said, understood)
        # The interpreter reads the source of a function back from its file.
        path = folder / f"{name}.py"
        path.write_text(_PRELUDE + text)
        module = ModuleType(name)
        exec(compile(path.read_text(), path, "exec"), module.__dict__)
        (self._function,) = (value for value in vars(module).values() if hasattr(value, "fn"))
        self._names = list(inspect.signature(self._function.fn).parameters)

    def run(self, *arguments, stream):
        blocks = [name for name in ("XBLOCK", "YBLOCK") if name in self._names]
        if not blocks:  # a template's: the grid comes last
            self._function[arguments[-3:]](*arguments[:-3])
            return
        named = dict(zip(self._names, arguments, strict=False))
        grid = tuple(triton.cdiv(named[f"{name[0].lower()}numel"], _BLOCK) for name in blocks)
        self._function[grid](**named, **dict.fromkeys(blocks, _BLOCK))


def run(source: str, arguments: list[torch.Tensor], folder: Path) -> list[torch.Tensor]:
    wrapper = _WRAPPER.search(source).group().replace("torch.cuda.set_device(0)", "pass")
    kernels = {name: Kernel(name, text, folder) for name, text in _KERNEL.findall(source)}
    namespace = {
        "torch": torch,
        "extern_kernels": extern_kernels,
        **{name: check for name, check in vars(guards).items() if name.startswith("assert_")},
        "reinterpret_tensor": guards._reinterpret_tensor,
        "empty_strided_cuda": lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype),
        "get_raw_stream": lambda device: None,
        "nullcontext": nullcontext,
        **kernels,
    }
    exec(wrapper.replace("torch.cuda._DeviceGuard(0)", "nullcontext()"), namespace)
    return namespace["call"](list(arguments))


def main(path: Path) -> None:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    torch.save([run(source, arguments, path.parent) for source, arguments in torch.load(path)], path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
