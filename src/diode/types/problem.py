"""What is to be computed: a problem is an op with its sizes, element types and memory layouts."""

from __future__ import annotations

import sys
from typing import Annotated, Final, Literal

import msgspec

from diode.errors import InvalidRecordError
from diode.types.dtypes import DType, item_bytes

Size = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]
Stride = Annotated[int, msgspec.Meta(gt=-(2**48), lt=2**48)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Layout = Literal["NN", "NT", "TN", "TT"]

LARGEST_FLOAT: Final = sys.float_info.max
"""The bound of every float in a record: JSON has no infinity."""

BATCHED_OPS: Final = frozenset({"bmm", "baddbmm"})
BIASED_OPS: Final = frozenset({"addmm", "baddbmm"})


class Operand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one matrix of a GEMM lies in memory; strides count elements, batch first where there is a batch."""

    dtype: DType
    strides: tuple[Stride, ...]


class MMShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="gemm"):
    """One GEMM problem, `out[B, M, N] = a[B, M, K] @ b[B, K, N] (+ bias)`.

    Two problems that differ in any field are different problems. `bias` carries the strides of the bias expanded to the
    shape of the output, so a vector is `(0, 1)` and a full matrix `(N, 1)`.
    """

    op: Name
    B: Size
    M: Size
    N: Size
    K: Size
    a: Operand
    b: Operand
    out: Operand
    bias: Operand | None = None
    allow_tf32: bool = False

    def __post_init__(self) -> None:
        rank = 3 if self.op in BATCHED_OPS else 2
        for role, operand in (("a", self.a), ("b", self.b), ("out", self.out), ("bias", self.bias)):
            if operand is not None and len(operand.strides) != rank:
                raise InvalidRecordError(
                    f"{self.op} {self.M}x{self.N}x{self.K}: operand {role} has {len(operand.strides)} strides, "
                    f"not the {rank} of this op"
                )
        if rank == 2 and self.B != 1:
            raise InvalidRecordError(f"{self.op} {self.M}x{self.N}x{self.K}: B is {self.B}, but this op has no batch")

    @classmethod
    def of(
        cls,
        op: str,
        M: int,
        N: int,
        K: int,
        *,
        B: int = 1,
        dtype: str = "bfloat16",
        layout: Layout = "NN",
        out_dtype: str | None = None,
        bias: Literal["vector", "matrix"] | None = None,
        allow_tf32: bool = False,
    ) -> MMShape:
        """A problem with dense operands; `layout` says for A and B whether each is transposed in memory (T) or not."""
        batched = op in BATCHED_OPS
        a_strides = _dense_strides(M, K, transposed=layout[0] == "T", batched=batched)
        b_strides = _dense_strides(K, N, transposed=layout[1] == "T", batched=batched)
        out_strides = _dense_strides(M, N, transposed=False, batched=batched)
        bias_operand = None
        if bias is None and op in BIASED_OPS:
            bias = "vector"
        if bias is not None:
            vector: tuple[int, ...] = (0, 0, 1) if batched else (0, 1)
            bias_operand = Operand(dtype, vector if bias == "vector" else out_strides)
        return cls(
            op=op,
            B=B,
            M=M,
            N=N,
            K=K,
            a=Operand(dtype, a_strides),
            b=Operand(dtype, b_strides),
            out=Operand(out_dtype or dtype, out_strides),
            bias=bias_operand,
            allow_tf32=allow_tf32 and dtype == "float32",
        )

    @property
    def layout(self) -> str:
        """`NT` for a Linear layer; `S` in place of a letter where neither dimension is contiguous."""
        return _letter(self.a, self.M, self.K) + _letter(self.b, self.K, self.N)

    @property
    def flops(self) -> int:
        return 2 * self.B * self.M * self.N * self.K

    @property
    def matrix_elements(self) -> tuple[int, int, int]:
        """Elements of A, B and the output."""
        return (self.B * self.M * self.K, self.B * self.K * self.N, self.B * self.M * self.N)

    @property
    def min_bytes(self) -> int:
        """The fewest bytes that must cross DRAM: each input read once, the output written once."""
        a, b, out = self.matrix_elements
        return a * item_bytes(self.a.dtype) + b * item_bytes(self.b.dtype) + out * item_bytes(self.out.dtype)

    @property
    def twin_group(self) -> tuple[int, int, int]:
        """Equal for problems that must stay on one side of training and test: same sizes, transposed or batched."""
        return (min(self.M, self.N), max(self.M, self.N), self.K)

    def __str__(self) -> str:
        batch = f"{self.B}x" if self.op in BATCHED_OPS else ""
        precision = "tf32" if self.allow_tf32 else self.a.dtype
        return f"{self.op} {batch}{self.M}x{self.N}x{self.K} {precision} {self.layout}"


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes, strides and element type of one input of an op that is not a GEMM."""

    sizes: tuple[Size, ...]
    strides: tuple[Stride, ...]
    dtype: DType


class OtherProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="other"):
    """A problem that is not a GEMM of this version (a convolution, say): kept by its inputs, never dropped."""

    op: Name
    inputs: tuple[TensorSpec, ...]
    out: TensorSpec | None = None

    def __str__(self) -> str:
        return f"{self.op}({', '.join('x'.join(map(str, spec.sizes)) for spec in self.inputs)})"


Problem = MMShape | OtherProblem


def _dense_strides(rows: int, columns: int, *, transposed: bool, batched: bool) -> tuple[int, ...]:
    matrix = (1, rows) if transposed else (columns, 1)
    return (rows * columns, *matrix) if batched else matrix


def _letter(operand: Operand, rows: int, columns: int) -> str:
    row_stride, column_stride = operand.strides[-2:]
    if column_stride == 1 and row_stride >= columns:
        return "N"
    if row_stride == 1 and column_stride >= rows:
        return "T"
    if (column_stride == 1 or columns == 1) and rows == 1:
        return "N"
    if row_stride == 1 and columns == 1:
        return "T"
    return "S"
