from __future__ import annotations

import itertools

import msgspec
import pytest

from diode.types import (
    AtenChoice,
    Choice,
    CppTemplateConfig,
    DecomposeKConfig,
    OtherChoice,
    PersistentTMAConfig,
    TritonGEMMConfig,
)

TILED = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4)
TMA = PersistentTMAConfig("triton::mm_persistent_tma", 64, 128, 32, 3, 4, True, False, 132)
EACH_KIND = [
    (TILED, "triton_gemm", "mm 64x128x32 stages=3 warps=4 group=8"),
    (TMA, "persistent_tma", "mm_persistent_tma 64x128x32 stages=3 warps=4 group=8"),
    (DecomposeKConfig(8), "decompose_k", "decompose_k split=8"),
    (AtenChoice("mm"), "aten", "aten mm"),
    (CppTemplateConfig("CppMicroGemm", (("block_n", 32),)), "cpp_template", "CppMicroGemm"),
    (OtherChoice("cutlass", "sm90", (("tile", "64x64"),)), "other", "cutlass sm90"),
]
CODECS = [(msgspec.json.encode, msgspec.json.decode), (msgspec.msgpack.encode, msgspec.msgpack.decode)]


@pytest.mark.parametrize(("choice", "kind", "text"), EACH_KIND)
def test_each_kind_has_its_name_and_survives(choice: Choice, kind: str, text: str) -> None:
    assert str(choice) == text
    for encode, decode in CODECS:
        assert decode(encode(choice))["type"] == kind
        read = decode(encode(choice), type=Choice)
        assert (type(read), read) == (type(choice), choice)
        assert hash(read) == hash(choice)


def test_choices_of_different_kinds_are_never_equal() -> None:
    kinds = [choice for choice, _, _ in EACH_KIND]
    assert len({*kinds, *kinds}) == len(kinds)
    assert all(one != other for one, other in itertools.combinations(kinds, 2))


@pytest.mark.parametrize("choice", [TILED, TMA])
def test_configs_that_differ_in_any_field_are_different(choice: Choice) -> None:
    others = {bool: lambda value: not value, int: lambda value: value + 1, str: lambda value: value + "_"}
    for name, value in msgspec.structs.asdict(choice).items():
        changed = (("new", 1),) if name == "extra" else others[type(value)](value)
        other = msgspec.structs.replace(choice, **{name: changed})
        assert other != choice, name
        assert len({other, choice}) == 2
    assert msgspec.structs.replace(choice) == choice


@pytest.mark.parametrize(
    "described",
    [
        lambda value: OtherChoice("b", "n", (("x", value),)),
        lambda value: CppTemplateConfig("t", (("x", value),)),
        lambda value: msgspec.structs.replace(TILED, extra=(("x", value),)),
        lambda value: msgspec.structs.replace(TMA, extra=(("x", value),)),
    ],
)
def test_what_a_backend_said_keeps_its_type(described) -> None:
    words = [True, 1, 1.0, "1", None, False, 0, 0.0, ""]
    choices = [described(word) for word in words]
    assert len(set(choices)) == len(words)
    for encode, decode in CODECS:
        read = [decode(encode(choice), type=Choice) for choice in choices]
        assert read == choices
        assert list(map(repr, read)) == list(map(repr, choices))


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "aten"},
        {"type": "aten", "kernel": ""},
        {"type": "aten", "kernel": "x" * 201},
        {"type": "aten", "kernel": "mm", "surprise": 1},
        {"type": "decompose_k", "k_split": 0},
        {"type": "decompose_k", "k_split": 2.5},
        {"type": "decompose_k", "k_split": True},
        {"type": "to_come", "kernel": "mm"},
        {"kernel": "mm"},
        {**msgspec.to_builtins(TILED), "block_m": -64},
        {**msgspec.to_builtins(TILED), "num_stages": 65},
        {**msgspec.to_builtins(TILED), "even_k": 1},
        {"type": "other", "backend": "b", "name": "n", "fields": [["x", [1]]]},
        {"type": "other", "backend": "b", "name": "n", "fields": [["x", 1, 2]]},
    ],
)
def test_what_is_no_choice_is_refused(wrong: dict) -> None:
    for encode, decode in CODECS:
        with pytest.raises(msgspec.ValidationError):
            decode(encode(wrong), type=Choice)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_numbers_said_by_a_backend_are_finite(wrong: float) -> None:
    said = msgspec.msgpack.encode({"type": "other", "backend": "b", "name": "n", "fields": [["x", wrong]]})
    with pytest.raises(msgspec.ValidationError, match="Expected `float`"):
        msgspec.msgpack.decode(said, type=Choice)
