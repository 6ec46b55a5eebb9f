"""Inductor's objects, read once into the types of diode.

Nothing here runs a kernel or keeps a reference to what it was given. Sizes and strides that Inductor holds as symbols
are read by their hints, so a problem of a dynamic graph is the one that Inductor itself would measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch._inductor import select_algorithm
from torch._inductor.ir import ChoiceCaller, Layout
from torch._inductor.kernel_inputs import KernelInputs, MMKernelInputs
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.select_algorithm import DataProcessorChoiceCallerWrapper, ExternKernelCaller
from torch._inductor.virtualized import V

from diode.types import (
    BATCHED_OPS,
    BIASED_OPS,
    AtenChoice,
    Choice,
    CppTemplateConfig,
    DecomposeKConfig,
    MMShape,
    Operand,
    OtherChoice,
    OtherProblem,
    PersistentTMAConfig,
    Problem,
    Scalar,
    TensorSpec,
    TritonGEMMConfig,
)

GEMM_OPS: Final = frozenset({"mm", "int_mm", "addmm", "bmm", "baddbmm"})
"""Ops whose inputs are A, B and at most a bias. Others take more (scales, a second product) than `MMShape` can tell."""

_ATEN_PREFIX: Final = "aten::"
_CALL_FACTS: Final = ("epilogue_fn", "epilogue_fn_hash", "prefix_args", "suffix_args", "workspace_arg")
"""Kwargs that follow from the op and its inputs and are the same for all choices of a problem: no part of a choice."""
_TILE_KWARGS: Final = frozenset({"BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps", "GROUP_M"})
_TMA_KWARGS: Final = frozenset({"A_ROW_MAJOR", "B_ROW_MAJOR", "NUM_SMS", "TMA_SIZE", "TMA_EXPERIMENTAL_API"})


_assumed_sizes: ContextVar[Mapping[sympy.Symbol, int]] = ContextVar("assumed_sizes", default={})  # noqa: B039  # read only


@contextmanager
def assuming(sizes: Mapping[sympy.Symbol, int]) -> Iterator[None]:
    """Inside, problems are read as if the symbols had these values in place of their hints."""
    token = _assumed_sizes.set(sizes)
    try:
        yield
    finally:
        _assumed_sizes.reset(token)


def choice_from_ktc(ktc: KernelTemplateChoice) -> Choice:
    """What a choice is, before Inductor has generated any code for it."""
    uid: str = ktc.template.uid
    if uid.startswith(_ATEN_PREFIX):
        return AtenChoice(uid.removeprefix(_ATEN_PREFIX))
    kwargs = ktc.params.to_kwargs()
    kwargs.update(ktc.extra_kwargs)
    for name in _CALL_FACTS:
        kwargs.pop(name, None)
    if kwargs.get("hint_override", 0) is None:
        del kwargs["hint_override"]
    if uid == "decompose_k" and kwargs.keys() == {"k_split"}:
        return DecomposeKConfig(int(kwargs["k_split"]))
    return _tiled_config(uid, kwargs) or OtherChoice(_backend(uid), uid, _fields(kwargs))


def choice_from_caller(caller: ChoiceCaller) -> Choice:
    """What a generated choice is; for the backends that bypass the template hook, by what they say of themselves."""
    unwrapped: ChoiceCaller = caller._wrapped if isinstance(caller, DataProcessorChoiceCallerWrapper) else caller
    ktc = unwrapped.annotations.get("ktc")
    if ktc is not None:
        return choice_from_ktc(ktc)
    if isinstance(unwrapped, ExternKernelCaller):
        return AtenChoice(unwrapped.choice.name)
    facts: dict[str, object] = dict(unwrapped.info_dict())
    backend = str(facts.pop("backend", type(unwrapped).__name__))
    if backend == "CPP":
        return _cpp_template_config(unwrapped, facts)
    if unwrapped.description:
        facts["description"] = unwrapped.description
    return OtherChoice(backend, _without_counter(unwrapped.name), _fields(facts))


def problem_from_inputs(op_name: str, kernel_inputs: KernelInputs) -> Problem:
    """The problem of one call of Inductor's template hook."""
    nodes = kernel_inputs.nodes()
    if isinstance(kernel_inputs, MMKernelInputs):
        return problem_from_nodes(op_name, nodes, kernel_inputs.output_layout(flexible=False))
    return _other_problem(op_name, nodes, None)


def problem_from_nodes(name: str, input_nodes: Sequence[Any], layout: Layout | None) -> Problem:
    """The problem of one autotuning event: the op's name, its inputs as Inductor orders them, and its output."""
    expected_inputs = 3 if name in BIASED_OPS else 2
    rank = 3 if name in BATCHED_OPS else 2
    if name not in GEMM_OPS or layout is None or len(input_nodes) != expected_inputs:
        return _other_problem(name, input_nodes, layout)
    *bias_nodes, a, b = input_nodes
    if not len(a.get_size()) == len(b.get_size()) == len(layout.size) == rank:
        return _other_problem(name, input_nodes, layout)
    *_, K = _hints(a.get_size())
    *batch, M, N = out_sizes = _hints(layout.size)
    dtype = a.get_dtype()
    return MMShape(
        op=name,
        B=batch[0] if batch else 1,
        M=M,
        N=N,
        K=K,
        a=_operand(a),
        b=_operand(b),
        out=Operand(_dtype_name(layout.dtype), _hints(layout.stride)),
        bias=_bias(bias_nodes[0], out_sizes) if bias_nodes else None,
        allow_tf32=dtype == torch.float32 and layout.device.type == "cuda" and _tf32_allowed(),
    )


def _tiled_config(uid: str, kwargs: dict[str, Any]) -> TritonGEMMConfig | PersistentTMAConfig | None:
    """A tiled Triton config, or None where the kwargs are not those of one."""
    if not uid.startswith("triton::") or not kwargs.keys() >= _TILE_KWARGS:
        return None
    take = kwargs.pop
    common: dict[str, Any] = {
        "template": uid,
        "block_m": take("BLOCK_M"),
        "block_n": take("BLOCK_N"),
        "block_k": take("BLOCK_K"),
        "num_stages": take("num_stages"),
        "num_warps": take("num_warps"),
        "group_m": take("GROUP_M"),
        "even_k": bool(take("EVEN_K", False)),
        "allow_tf32": _flag(take("ALLOW_TF32", False)),
        "use_fast_accum": bool(take("USE_FAST_ACCUM", False)),
        "acc_type": take("ACC_TYPE", "tl.float32"),
    }
    if not kwargs.keys() >= _TMA_KWARGS:
        return TritonGEMMConfig(**common, extra=_fields(kwargs))
    return PersistentTMAConfig(
        **common,
        a_row_major=bool(take("A_ROW_MAJOR")),
        b_row_major=bool(take("B_ROW_MAJOR")),
        num_sms=take("NUM_SMS"),
        tma_size=take("TMA_SIZE"),
        tma_experimental_api=bool(take("TMA_EXPERIMENTAL_API")),
        extra=_fields(kwargs),
    )


def _flag(value: object) -> bool:
    """ALLOW_TF32 is a bool in the heuristics and, once a template has been asked for code, the string of one."""
    return value is True or value == "True"


def _backend(uid: str) -> str:
    prefix, separator, _ = uid.partition("::")
    return prefix if separator else "subgraph"


def _cpp_template_config(caller: Any, facts: dict[str, object]) -> CppTemplateConfig:
    template = caller.template
    facts["num_threads"] = template.num_threads
    blocking = getattr(template, "register_blocking", None)
    if blocking is not None:
        facts |= {"block_m": blocking.block_m, "block_n": blocking.block_n, "block_k": blocking.block_k}
    return CppTemplateConfig(caller.category, _fields(facts))


def _without_counter(name: str) -> str:
    """Inductor numbers the choices of a process; the number says nothing about the choice."""
    stem, _, counter = name.rpartition("_")
    return stem if stem and counter.isdigit() else name


def _fields(facts: Mapping[str, object]) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted((name, _scalar(value)) for name, value in facts.items())) if facts else ()


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, partial):
        value = value.func
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value)


def _other_problem(name: str, nodes: Iterable[Any], layout: Layout | None) -> OtherProblem:
    out = None if layout is None else TensorSpec(_hints(layout.size), _hints(layout.stride), _dtype_name(layout.dtype))
    return OtherProblem(name, tuple(_tensor_spec(node) for node in nodes), out)


def _tensor_spec(node: Any) -> TensorSpec:
    return TensorSpec(_hints(node.get_size()), _hints(_strides(node)), _dtype_name(node.get_dtype()))


def _operand(node: Any) -> Operand:
    return Operand(_dtype_name(node.get_dtype()), _hints(_strides(node)))


def _bias(node: Any, out_sizes: tuple[int, ...]) -> Operand:
    """Strides of the bias as if expanded to the output: 0 wherever one element serves the whole dimension."""
    sizes, strides = _hints(node.get_size()), _hints(_strides(node))
    added = (0,) * (len(out_sizes) - len(sizes))
    broadcast = tuple(0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))
    return Operand(_dtype_name(node.get_dtype()), added + broadcast)


def _strides(node: Any) -> Sequence[Any]:
    """The strides that the input will have: newer torch lets consumers constrain a layout that is not fixed yet."""
    constrained = getattr(select_algorithm, "get_strides_with_layout_constraints", None)
    strides: Sequence[Any] = node.get_stride() if constrained is None else constrained(node)
    return strides


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tf32_allowed() -> bool:
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def _hints(expressions: Iterable[Any]) -> tuple[int, ...]:
    values = tuple(expressions)
    assumed = _assumed_sizes.get()
    if assumed:
        precomputed = V.graph.sizevars.inv_precomputed_replacements
        values = tuple(sympy.sympify(value).subs(precomputed).subs(assumed) for value in values)
    sizevars: Any = V.graph.sizevars
    if hasattr(sizevars, "optimization_hints"):
        return tuple(int(hint) for hint in sizevars.optimization_hints(values))
    # torch 2.10 has no method of that name yet; the fallback is what it benchmarks unbacked sizes with
    fallback = torch._inductor.config.unbacked_symint_fallback
    return tuple(int(hint) for hint in sizevars.size_hints(values, fallback=fallback))
