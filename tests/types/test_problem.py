from __future__ import annotations

import msgspec
import pytest

from diode.errors import InvalidRecordError
from diode.types import Layout, MMShape, Operand, OtherProblem, Problem, TensorSpec
from diode.types.dtypes import item_bytes

LINEAR = MMShape.of("addmm", 64, 96, 128, dtype="float32", layout="NT")


@pytest.mark.parametrize(
    ("layout", "a", "b"),
    [("NN", (128, 1), (96, 1)), ("NT", (128, 1), (1, 128)), ("TN", (1, 64), (96, 1)), ("TT", (1, 64), (1, 128))],
)
def test_a_layout_says_how_dense_operands_lie(layout: Layout, a, b) -> None:
    problem = MMShape.of("mm", 64, 96, 128, layout=layout)
    assert (problem.a.strides, problem.b.strides, problem.out.strides) == (a, b, (96, 1))
    assert problem.layout == layout
    batched = MMShape.of("bmm", 64, 96, 128, B=5, layout=layout)
    assert (batched.a.strides, batched.b.strides) == ((64 * 128, *a), (128 * 96, *b))
    assert batched.out.strides == (64 * 96, 96, 1)
    assert batched.layout == layout


@pytest.mark.parametrize(
    ("sizes", "a", "b", "layout"),
    [
        ((64, 96, 128), (136, 1), (1, 200), "NT"),  # padded
        ((64, 96, 128), (256, 2), (96, 1), "SN"),
        ((64, 96, 128), (0, 1), (96, 1), "SN"),  # one row for all
        ((1, 96, 128), (128, 1), (96, 1), "NN"),
        ((64, 1, 128), (128, 1), (1, 1), "NN"),
        ((64, 1, 128), (128, 1), (1, 128), "NT"),
        ((1, 96, 128), (0, 1), (96, 1), "NN"),
    ],
)
def test_the_layout_is_read_from_strides(sizes, a, b, layout: str) -> None:
    M, N, K = sizes
    out = Operand("float16", (N, 1))
    assert MMShape("mm", 1, M, N, K, Operand("float16", a), Operand("float16", b), out).layout == layout


@pytest.mark.parametrize(
    "changes",
    [
        {"op": "mm"},
        {"M": 65},
        {"N": 97},
        {"K": 129},
        {"a": Operand("float32", (136, 1))},
        {"a": Operand("float16", (128, 1))},
        {"b": Operand("float32", (96, 1))},
        {"b": Operand("bfloat16", (1, 128))},
        {"out": Operand("float32", (104, 1))},
        {"out": Operand("float16", (96, 1))},
        {"bias": None},
        {"bias": Operand("float32", (96, 1))},
        {"bias": Operand("float16", (0, 1))},
        {"allow_tf32": True},
    ],
)
def test_problems_that_differ_in_anything_are_different(changes) -> None:
    other = msgspec.structs.replace(LINEAR, **changes)
    assert other != LINEAR
    assert len({other, LINEAR}) == 2
    for encode, decode in (
        (msgspec.json.encode, msgspec.json.decode),
        (msgspec.msgpack.encode, msgspec.msgpack.decode),
    ):
        assert decode(encode(other), type=Problem) == other


def test_a_bias_is_a_vector_a_matrix_or_none() -> None:
    assert LINEAR.bias == Operand("float32", (0, 1))
    assert MMShape.of("addmm", 8, 16, 24, bias="matrix").bias == Operand("bfloat16", (16, 1))
    assert MMShape.of("baddbmm", 8, 16, 24, B=2).bias == Operand("bfloat16", (0, 0, 1))
    assert MMShape.of("baddbmm", 8, 16, 24, B=2, bias="matrix").bias == Operand("bfloat16", (128, 16, 1))
    assert MMShape.of("mm", 8, 16, 24).bias is None


def test_tf32_is_a_permission_for_float32_alone() -> None:
    assert MMShape.of("mm", 8, 8, 8, dtype="float32", allow_tf32=True).allow_tf32
    assert not MMShape.of("mm", 8, 8, 8, dtype="float32").allow_tf32
    assert not MMShape.of("mm", 8, 8, 8, dtype="bfloat16", allow_tf32=True).allow_tf32


@pytest.mark.parametrize("role", ["a", "b", "out", "bias"])
@pytest.mark.parametrize(("op", "strides", "rank"), [("addmm", (1, 1, 1), 2), ("baddbmm", (1, 1), 3)])
def test_operands_have_a_stride_for_each_dimension_of_the_op(role: str, op: str, strides, rank: int) -> None:
    whole = MMShape.of(op, 8, 16, 24)
    with pytest.raises(InvalidRecordError, match=f"operand {role} has {len(strides)} strides, not the {rank} of this"):
        msgspec.structs.replace(whole, **{role: Operand("bfloat16", strides)})


def test_only_batched_ops_have_a_batch() -> None:
    with pytest.raises(InvalidRecordError, match="mm 8x16x24: B is 4, but this op has no batch"):
        MMShape.of("mm", 8, 16, 24, B=4)
    assert MMShape.of("bmm", 8, 16, 24, B=4).B == 4


def test_work_and_traffic_are_counted() -> None:
    problem = MMShape.of("bmm", 8, 16, 24, B=3, dtype="float16", out_dtype="float32")
    assert problem.flops == 2 * 3 * 8 * 16 * 24
    assert problem.matrix_elements == (3 * 8 * 24, 3 * 24 * 16, 3 * 8 * 16)
    assert problem.min_bytes == 2 * 3 * (8 * 24 + 24 * 16) + 4 * 3 * 8 * 16


@pytest.mark.parametrize(
    ("dtype", "size"), [("float64", 8), ("float32", 4), ("bfloat16", 2), ("float8_e4m3fn", 1), ("to_come", 0)]
)
def test_bytes_of_an_element(dtype: str, size: int) -> None:
    assert item_bytes(dtype) == size


def test_twins_share_a_group() -> None:
    group = MMShape.of("mm", 64, 96, 128).twin_group
    assert MMShape.of("bmm", 96, 64, 128, B=7, dtype="float32", layout="TT").twin_group == group
    assert MMShape.of("mm", 64, 128, 96).twin_group != group


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (MMShape.of("mm", 8, 16, 24), "mm 8x16x24 bfloat16 NN"),
        (MMShape.of("bmm", 8, 16, 24, B=2, layout="NT"), "bmm 2x8x16x24 bfloat16 NT"),
        (MMShape.of("mm", 8, 16, 24, dtype="float32", allow_tf32=True), "mm 8x16x24 tf32 NN"),
        (OtherProblem("conv", (TensorSpec((8, 3), (3, 1), "int8"), TensorSpec((), (), "int8"))), "conv(8x3, )"),
    ],
)
def test_a_problem_has_a_short_name(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_what_is_no_gemm_is_kept_by_its_inputs() -> None:
    image = TensorSpec((8, 3, 224, 224), (150528, 1, 672, 3), "float16")
    problem = OtherProblem("convolution", (image,), image)
    assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem
    assert msgspec.json.decode(msgspec.json.encode(LINEAR), type=Problem) == LINEAR
