"""One GEMM problem as the public torch-diode writes it, extended by what that form leaves out."""

from __future__ import annotations

from typing import Annotated, Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from diode.storage.flaws import Flaw
from diode.types.dtypes import DType
from diode.types.problem import BATCHED_OPS, Layout, MMShape, Operand, Size, Stride

TorchDType = Annotated[str, msgspec.Meta(pattern=r"^(torch\.)?[a-z][a-z0-9_]*\Z", max_length=40)]
Strides = tuple[Stride, ...]
_LAYOUTS: Final[tuple[Layout, ...]] = get_args(Layout)


class ShapeForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`M_dtype` is the element type of A and `K_dtype` that of B; strides count elements, batch first.

    The fields from `layout` on are ours. Where they are absent, A and B are dense and row-major (`NN`), an op that adds
    has a bias vector of A's type, and TF32 is not allowed. A and B are given by `layout` or by both their strides.
    A `bias_stride` of null says that there is no bias.
    """

    M: Size
    M_dtype: TorchDType
    N: Size
    K: Size
    K_dtype: TorchDType
    out_dtype: TorchDType
    B: Size = 1
    out_size: tuple[Size, ...] | UnsetType = UNSET
    out_stride: Strides | UnsetType = UNSET
    layout: Layout | UnsetType = UNSET
    a_stride: Strides | UnsetType = UNSET
    b_stride: Strides | UnsetType = UNSET
    bias_dtype: DType | UnsetType = UNSET
    bias_stride: Strides | UnsetType | None = UNSET
    allow_tf32: bool | UnsetType = UNSET
    written_version: int | UnsetType = msgspec.field(name="_version", default=UNSET)


def form_of(problem: MMShape) -> ShapeForm:
    dense = _dense(problem.op, problem, problem.a.dtype, "NN")
    layout = next((layout for layout in _LAYOUTS if _lies_as(problem, layout)), None)
    bias_dtype: str | UnsetType = UNSET
    bias_stride: Strides | UnsetType | None = UNSET
    if problem.bias != dense.bias:
        bias_dtype = UNSET if problem.bias is None else problem.bias.dtype
        bias_stride = None if problem.bias is None else problem.bias.strides
    return ShapeForm(
        M=problem.M,
        M_dtype=problem.a.dtype,
        N=problem.N,
        K=problem.K,
        K_dtype=problem.b.dtype,
        out_dtype=problem.out.dtype,
        B=problem.B,
        out_size=_out_size(problem.op, problem),
        out_stride=problem.out.strides,
        layout=UNSET if layout is None else layout,
        a_stride=problem.a.strides if layout is None else UNSET,
        b_stride=problem.b.strides if layout is None else UNSET,
        bias_dtype=bias_dtype,
        bias_stride=bias_stride,
        allow_tf32=problem.allow_tf32 or UNSET,
    )


def problem_of(op: str, form: ShapeForm) -> MMShape:
    if (form.a_stride is UNSET) != (form.b_stride is UNSET):
        raise Flaw("a_stride" if form.a_stride is UNSET else "b_stride", "is missing: give both strides or a layout")
    if form.layout is not UNSET and form.a_stride is not UNSET:
        raise Flaw("layout", "contradicts a_stride and b_stride: give either")
    dtype = _plain(form.M_dtype)
    dense = _dense(op, form, dtype, "NN" if form.layout is UNSET else form.layout)
    return MMShape(
        op=op,
        B=form.B,
        M=form.M,
        N=form.N,
        K=form.K,
        a=Operand(dtype, dense.a.strides if form.a_stride is UNSET else form.a_stride),
        b=Operand(_plain(form.K_dtype), dense.b.strides if form.b_stride is UNSET else form.b_stride),
        out=Operand(_plain(form.out_dtype), _out_strides(op, form, dense.out.strides)),
        bias=_bias(form, dense.bias),
        allow_tf32=form.allow_tf32 is True,
    )


def _bias(form: ShapeForm, usual: Operand | None) -> Operand | None:
    if form.bias_stride is None:
        if form.bias_dtype is not UNSET:
            raise Flaw("bias_dtype", "contradicts a bias_stride of null")
        return None
    if form.bias_stride is UNSET and form.bias_dtype is UNSET:
        return usual
    if form.bias_stride is not UNSET:
        return Operand(_plain(form.M_dtype) if form.bias_dtype is UNSET else form.bias_dtype, form.bias_stride)
    if usual is None or form.bias_dtype is UNSET:
        raise Flaw("bias_stride", "is missing beside bias_dtype")
    return Operand(form.bias_dtype, usual.strides)


def _out_strides(op: str, form: ShapeForm, dense: Strides) -> Strides:
    strides = dense if form.out_stride is UNSET else form.out_stride
    size = _out_size(op, form)
    if form.out_size is not UNSET and form.out_size not in (size, (form.B, form.M, form.N)):
        raise Flaw("out_size", f"is {list(form.out_size)}, but the sizes make it {list(size)}")
    # The public package gives some unbatched outputs a leading dimension of one.
    has_batch_of_one = op not in BATCHED_OPS and form.B == 1 and len(strides) == 3
    return strides[1:] if has_batch_of_one else strides


def _out_size(op: str, sizes: MMShape | ShapeForm) -> tuple[int, ...]:
    return (sizes.B, sizes.M, sizes.N) if op in BATCHED_OPS else (sizes.M, sizes.N)


def _dense(op: str, sizes: MMShape | ShapeForm, dtype: str, layout: Layout) -> MMShape:
    return MMShape.of(op, sizes.M, sizes.N, sizes.K, B=sizes.B, dtype=dtype, layout=layout)


def _lies_as(problem: MMShape, layout: Layout) -> bool:
    dense = _dense(problem.op, problem, problem.a.dtype, layout)
    return (problem.a.strides, problem.b.strides) == (dense.a.strides, dense.b.strides)


def _plain(dtype: str) -> str:
    return dtype.removeprefix("torch.")
