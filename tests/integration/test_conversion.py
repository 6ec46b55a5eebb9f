"""Conversion of what Inductor really generates for an H100 that is only described."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest
import torch
from tests.integration.by_torch import TF32_BY_OLDER_NAME
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.template_heuristics.params import DictKernelTemplateParams

from diode.integration.conversion import (
    choice_from_caller,
    choice_from_ktc,
    problem_from_inputs,
    problem_from_nodes,
)
from diode.types import (
    AtenChoice,
    Choice,
    DecomposeKConfig,
    MMShape,
    Operand,
    OtherChoice,
    OtherProblem,
    PersistentTMAConfig,
    Problem,
    TensorSpec,
    TritonGEMMConfig,
)

BF16 = torch.bfloat16
CALL_FACTS = {"epilogue_fn", "epilogue_fn_hash", "prefix_args", "suffix_args", "workspace_arg", "hint_override"}
TILE_NAMES = {
    "block_m": "BLOCK_M",
    "block_n": "BLOCK_N",
    "block_k": "BLOCK_K",
    "num_stages": "num_stages",
    "num_warps": "num_warps",
    "group_m": "GROUP_M",
    "even_k": "EVEN_K",
    "allow_tf32": "ALLOW_TF32",
    "use_fast_accum": "USE_FAST_ACCUM",
    "acc_type": "ACC_TYPE",
}
TMA_NAMES = {
    **TILE_NAMES,
    "a_row_major": "A_ROW_MAJOR",
    "b_row_major": "B_ROW_MAJOR",
    "num_sms": "NUM_SMS",
    "tma_size": "TMA_SIZE",
    "tma_experimental_api": "TMA_EXPERIMENTAL_API",
}


def row_major(*sizes, dtype=BF16):
    return (sizes, None, dtype)


def transposed(rows, columns, dtype=BF16):
    return ((rows, columns), (1, rows), dtype)


def told_by_inductor(ktc):
    kwargs = {**ktc.params.to_kwargs(), **ktc.extra_kwargs}
    return {name: value for name, value in kwargs.items() if name not in CALL_FACTS}


def told_by_record(choice, names):
    return {inductor: getattr(choice, ours) for ours, inductor in names.items()} | dict(choice.extra)


def choices_of(calls, uid):
    return [ktc for call in calls for ktc in call.choices.get(uid, [])]


def only_problem(calls) -> Problem:
    problems = {problem_from_inputs(call.op_name, call.inputs) for call in calls}
    assert len(problems) == 1
    return problems.pop()


def assert_strictly_typed(record, kind):
    assert msgspec.convert(msgspec.to_builtins(record), kind, strict=True) == record


def test_every_kwarg_of_a_triton_config_is_kept(lower):
    calls = lower(torch.mm, row_major(512, 1040), row_major(1040, 2048), max_autotune_gemm_search_space="EXHAUSTIVE")
    generated = choices_of(calls, "triton::mm")
    choices = [choice_from_ktc(ktc) for ktc in generated]
    assert len(choices) > 500
    assert len(set(choices)) == len(choices)
    for ktc, choice in zip(generated, choices, strict=True):
        assert isinstance(choice, TritonGEMMConfig)
        assert choice.template == "triton::mm"
        assert told_by_record(choice, TILE_NAMES) == told_by_inductor(ktc)
    assert {choice.even_k for choice in choices if choice.block_k == 16} == {True}
    assert {choice.even_k for choice in choices if choice.block_k == 64} == {False}
    assert_strictly_typed(choices[0], Choice)


def test_every_kwarg_of_a_persistent_tma_config_is_kept(lower):
    calls = lower(torch.mm, row_major(512, 1024), transposed(1024, 2048))
    generated = choices_of(calls, "triton::mm_persistent_tma")
    assert generated
    for ktc in generated:
        choice = choice_from_ktc(ktc)
        assert isinstance(choice, PersistentTMAConfig)
        assert (choice.a_row_major, choice.b_row_major, choice.num_sms) == (True, False, 132)
        assert told_by_record(choice, TMA_NAMES) == told_by_inductor(ktc)
        assert list(choice.extra) == sorted(choice.extra)
        assert_strictly_typed(choice, Choice)


def test_templates_with_more_than_the_common_fields_keep_them_in_extra(lower):
    fp8 = torch.float8_e4m3fn
    scale = ((), None, torch.float32)

    def scaled(a, b, scale_a, scale_b):
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=BF16)

    calls = lower(scaled, row_major(512, 1024, dtype=fp8), transposed(1024, 2048, dtype=fp8), scale, scale)
    generated = choices_of(calls, "triton::scaled_mm_device_tma_epilogue_scaling")
    assert generated
    for ktc in generated:
        choice = choice_from_ktc(ktc)
        assert isinstance(choice, TritonGEMMConfig)
        assert told_by_record(choice, TILE_NAMES) == told_by_inductor(ktc)
        assert dict(choice.extra)["NUM_SMS"] == 132

    problem = only_problem(calls)
    assert isinstance(problem, OtherProblem)
    assert problem.op == "scaled_mm"
    assert [spec.dtype for spec in problem.inputs] == ["float8_e4m3fn", "float8_e4m3fn", "float32", "float32"]
    assert problem.out == TensorSpec((512, 2048), (2048, 1), "bfloat16")


def test_decompose_k(lower):
    calls = lower(torch.mm, row_major(32, 65536), row_major(65536, 48))
    choices = [choice_from_ktc(ktc) for ktc in choices_of(calls, "decompose_k")]
    assert choices
    assert all(isinstance(choice, DecomposeKConfig) for choice in choices)
    splits = [ktc.params.to_kwargs()["k_split"] for ktc in choices_of(calls, "decompose_k")]
    assert [choice.k_split for choice in choices] == splits


def test_library_kernels_are_named_as_inductor_names_them(lower):
    calls = lower(torch.addmm, row_major(2048), row_major(512, 1024), row_major(1024, 2048))
    library = {uid: choice_from_ktc(ktcs[0]) for call in calls for uid, ktcs in call.choices.items() if "aten::" in uid}
    assert library["aten::addmm"] == AtenChoice("addmm")
    assert library == {uid: AtenChoice(uid.split("::")[1]) for uid in library}


def test_choices_of_addmm_are_the_same_in_every_lowering(lower):
    arguments = (row_major(2048), row_major(512, 1024), row_major(1024, 2048))
    first, second = (
        [
            choice_from_ktc(ktc)
            for call in lower(torch.addmm, *arguments)
            for ktcs in call.choices.values()
            for ktc in ktcs
        ]
        for _ in range(2)
    )
    assert first == second
    assert any(isinstance(choice, TritonGEMMConfig) for choice in first)


def test_all_hook_calls_of_an_addmm_are_one_problem(lower):
    calls = lower(torch.addmm, row_major(2048), row_major(512, 1024), transposed(1024, 2048))
    assert only_problem(calls) == MMShape.of("addmm", 512, 2048, 1024, layout="NT")


@pytest.mark.parametrize(
    ("bias", "strides"),
    [
        (row_major(2048), (0, 1)),
        (row_major(512, 2048), (2048, 1)),
        (row_major(1, 2048), (0, 1)),
        (row_major(512, 1), (1, 0)),
        (((512, 2048), (1, 512), BF16), (1, 512)),
    ],
)
def test_bias_is_recorded_as_expanded_to_the_output(lower, bias, strides):
    problem = only_problem(lower(torch.addmm, bias, row_major(512, 1024), row_major(1024, 2048)))
    assert isinstance(problem, MMShape)
    assert problem.bias == Operand("bfloat16", strides)


def test_bias_of_a_batched_op(lower):
    operands = (row_major(4, 512, 256), row_major(4, 256, 128))
    whole = only_problem(lower(torch.baddbmm, row_major(4, 512, 128), *operands))
    assert whole == MMShape.of("baddbmm", 512, 128, 256, B=4, bias="matrix")
    shared_rows = only_problem(lower(torch.baddbmm, row_major(4, 1, 128), *operands))
    assert isinstance(shared_rows, MMShape)
    assert shared_rows.bias == Operand("bfloat16", (128, 0, 1))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_mm_is_recorded_with_its_layout(lower, layout):
    a = row_major(512, 1024) if layout[0] == "N" else transposed(512, 1024)
    b = row_major(1024, 2048) if layout[1] == "N" else transposed(1024, 2048)
    assert only_problem(lower(torch.mm, a, b)) == MMShape.of("mm", 512, 2048, 1024, layout=layout)


def test_bmm_with_strides_between_its_rows(lower):
    padded = ((4, 64, 128), (16384, 256, 1), BF16)
    problem = only_problem(lower(torch.bmm, padded, row_major(4, 128, 96)))
    expected = MMShape.of("bmm", 64, 96, 128, B=4)
    assert problem == msgspec.structs.replace(expected, a=Operand("bfloat16", (16384, 256, 1)))


def test_int_mm_has_another_output_type(lower):
    calls = lower(torch._int_mm, row_major(512, 1024, dtype=torch.int8), row_major(1024, 2048, dtype=torch.int8))
    assert only_problem(calls) == MMShape.of("int_mm", 512, 2048, 1024, dtype="int8", out_dtype="int32")
    assert {choice_from_ktc(ktc).acc_type for ktc in choices_of(calls, "triton::mm")} == {"tl.int32"}


@contextmanager
def float32_matmul(precision: str) -> Iterator[None]:
    """By the newer of torch's two names for it, where Inductor can read what was set by that."""
    matmul = torch.backends.cuda.matmul
    name, value = ("allow_tf32", precision == "tf32") if TF32_BY_OLDER_NAME else ("fp32_precision", precision)
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)


@pytest.mark.parametrize(
    ("precision", "dtype", "allowed"),
    [("tf32", torch.float32, True), ("ieee", torch.float32, False), ("tf32", BF16, False)],
)
def test_tf32_permission_is_of_float32_alone(lower, precision, dtype, allowed):
    with float32_matmul(precision):
        calls = lower(torch.mm, row_major(512, 1024, dtype=dtype), row_major(1024, 2048, dtype=dtype))
        problem = only_problem(calls)
        choices = [choice_from_ktc(ktc) for ktc in choices_of(calls, "triton::mm")]
    assert isinstance(problem, MMShape)
    assert problem.allow_tf32 is allowed
    assert {choice.allow_tf32 for choice in choices} == {precision == "tf32"}


def test_a_second_product_makes_it_no_gemm(lower):
    (call, *_) = lower(torch.mm, row_major(512, 1024), row_major(1024, 2048))
    a, b = call.inputs.nodes()
    problem = problem_from_inputs("mm_plus_mm", MMKernelInputs([a, b, a, b], mat1_idx=0, mat2_idx=1))
    assert isinstance(problem, OtherProblem)
    assert [spec.sizes for spec in problem.inputs] == [(512, 1024), (1024, 2048), (512, 1024), (1024, 2048)]
    assert_strictly_typed(problem, Problem)


def test_a_gemm_by_name_with_other_inputs_is_kept_whole(lower):
    (call, *_) = lower(torch.bmm, row_major(4, 64, 128), row_major(4, 128, 96))
    a, b = call.inputs.nodes()
    layout = call.inputs.output_layout(flexible=False)
    assert isinstance(problem_from_nodes("bmm", [a, b], layout), MMShape)
    for name, nodes in (("mm", [a, b]), ("bmm", [a, b, b]), ("bmm", [a])):
        problem = problem_from_nodes(name, nodes, layout)
        assert isinstance(problem, OtherProblem)
        assert len(problem.inputs) == len(nodes)
    unknown_output = problem_from_nodes("bmm", [a, b], None)
    assert unknown_output == OtherProblem(
        "bmm",
        (
            TensorSpec((4, 64, 128), (8192, 128, 1), "bfloat16"),
            TensorSpec((4, 128, 96), (12288, 96, 1), "bfloat16"),
        ),
    )


def test_an_unknown_template_is_kept_whole(lower):
    calls = lower(torch.mm, row_major(32, 65536), row_major(65536, 48))
    known = choices_of(calls, "decompose_k")[0]
    kwargs = {
        "k_split": 4,
        "novel": torch.float32,
        "tile": (1, 2),
        "epilogue": test_decompose_k,
        "fused": partial(test_decompose_k, None),
        "ratio": 0.5,
        "none": None,
    }
    ktc = KernelTemplateChoice(known.template, DictKernelTemplateParams(kwargs), {}, known.layout, known.inputs)
    here = f"{__name__}.test_decompose_k"
    choice = choice_from_ktc(ktc)
    assert choice == OtherChoice(
        backend="subgraph",
        name="decompose_k",
        fields=(
            ("epilogue", here),
            ("fused", here),
            ("k_split", 4),
            ("none", None),
            ("novel", "torch.float32"),
            ("ratio", 0.5),
            ("tile", "(1, 2)"),
        ),
    )
    assert_strictly_typed(choice, Choice)


def test_a_triton_template_without_tiles_is_kept_whole(lower):
    known = choices_of(lower(torch.mm, row_major(512, 1024), row_major(1024, 2048)), "triton::mm")[0]
    params = DictKernelTemplateParams({"BLOCK_M": 64, "num_warps": 4})
    ktc = KernelTemplateChoice(known.template, params, {"ALLOW_TF32": False}, known.layout, known.inputs)
    fields = (("ALLOW_TF32", False), ("BLOCK_M", 64), ("num_warps", 4))
    assert choice_from_ktc(ktc) == OtherChoice("triton", "triton::mm", fields)


def test_a_generated_choice_is_the_one_it_was_generated_from(lower):
    calls = lower(torch.mm, row_major(512, 1024), row_major(1024, 2048))
    for uid in ("aten::mm", "triton::mm"):
        ktc = choices_of(calls, uid)[0]
        ktc.layout = ktc.inputs.output_layout(flexible=False)
        assert choice_from_caller(ktc.choice) == choice_from_ktc(ktc)


def test_choices_that_bypass_the_hook_tell_of_themselves(lower):
    offered = []

    def remember(choices):
        offered.extend(choices)
        return choices

    selector = get_algorithm_selector_cache()
    selector.add_preprocessing_fn(remember)
    try:
        lower(torch.conv2d, row_major(4, 32, 16, 16), row_major(64, 32, 3, 3), max_autotune_conv_backends="ATEN,TRITON")
    finally:
        selector.preprocessing_fns.remove(remember)

    choices = [choice_from_caller(caller) for caller in offered]
    assert choices.count(AtenChoice("convolution")) == 1
    triton = [choice for choice in choices if isinstance(choice, OtherChoice)]
    assert len(triton) == len(choices) - 1 > 1
    assert len(set(choices)) == len({caller.hash_key() for caller in offered})
    assert {(choice.backend, choice.name) for choice in triton} == {("Triton", "triton_convolution2d")}
    assert all("BLOCK_K=" in str(dict(choice.fields)["description"]) for choice in triton)
    assert_strictly_typed(triton[0], Choice)

    problem = problem_from_nodes("convolution", offered[0].input_nodes, offered[0].layout)
    assert isinstance(problem, OtherProblem)
    assert [spec.sizes for spec in problem.inputs] == [(4, 32, 16, 16), (64, 32, 3, 3)]
    assert problem.out is not None
    assert problem.out.sizes == (4, 64, 14, 14)
