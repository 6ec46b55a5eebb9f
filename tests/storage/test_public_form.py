"""The nested datasets of the public torch-diode 0.1."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from diode.storage import read_dataset
from diode.types import MMShape, TritonGEMMConfig

SHAPE = {
    "B": 1, "M": 256, "M_dtype": "float16", "N": 1024, "K": 512, "K_dtype": "float16", "out_dtype": "float16",
    "out_size": [256, 1024], "out_stride": [1024, 1], "_version": 1,
}  # fmt: skip
CONFIG = {
    "name": "mm_config", "grid": None, "block_m": 64, "block_n": 128, "block_k": 32, "group_m": 8, "num_stages": 3,
    "num_warps": 4, "EVEN_K": True, "ALLOW_TF32": False, "USE_FAST_ACCUM": False, "ACC_TYPE": "tl.float32",
    "_version": 1,
}  # fmt: skip


def public(timed: list[object], shape: object = None, op: str = "mm") -> dict:
    key = json.dumps(SHAPE if shape is None else shape)
    solution = {key: {"timed_configs": timed}}
    return {"hardware": {"NVIDIA H100": {"operation": {op: {"solution": solution}}}}, "version": 1}


@pytest.mark.parametrize(("suffix", "encode"), [(".json", msgspec.json.encode), (".msgpack", msgspec.msgpack.encode)])
def test_milliseconds_become_microseconds_and_names_are_kept(suffix: str, encode, tmp_path: Path) -> None:
    tf32 = {**CONFIG, "name": "triton::mm", "ALLOW_TF32": True, "grid": 7}
    (tmp_path / f"a{suffix}").write_bytes(
        encode(public([{"config": CONFIG, "time": 0.0125}, {"config": tf32, "time": 1.5}]))
    )
    first, second = read_dataset(tmp_path / f"a{suffix}")
    assert first.problem == second.problem == MMShape.of("mm", 256, 1024, 512, dtype="float16")
    assert (first.time_us, second.time_us) == (12.5, 1500.0)
    expected = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4, even_k=True, extra=(("name", "mm_config"),))
    assert first.choice == expected
    assert second.choice == msgspec.structs.replace(expected, allow_tf32=True, extra=(("grid", 7),))
    assert (first.environment.hardware.name, first.method.timer, first.method.statistic) == (
        "NVIDIA H100", "public-torch-diode", "min",
    )  # fmt: skip


def test_tf32_of_a_config_makes_another_problem_of_float32(tmp_path: Path) -> None:
    shape = {**SHAPE, "M_dtype": "torch.float32", "K_dtype": "torch.float32", "out_dtype": "torch.float32"}
    timed = [{"config": {**CONFIG, "ALLOW_TF32": allowed}, "time": 1.0} for allowed in (True, False)]
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(public(timed, shape)))
    assert [row.problem.allow_tf32 for row in read_dataset(tmp_path / "a.json")] == [True, False]


def test_an_op_that_adds_has_a_vector_and_a_batch_its_own_template(tmp_path: Path) -> None:
    timed = [{"config": CONFIG, "time": 1.0}]
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(public(timed, op="addmm")))
    (row,) = read_dataset(tmp_path / "a.json")
    assert row.problem == MMShape.of("addmm", 256, 1024, 512, dtype="float16", bias="vector")
    batch = {**SHAPE, "B": 4, "out_size": [4, 256, 1024], "out_stride": [262144, 1024, 1]}
    (tmp_path / "b.json").write_bytes(msgspec.json.encode(public(timed, batch, op="bmm")))
    (row,) = read_dataset(tmp_path / "b.json")
    assert row.problem == MMShape.of("bmm", 256, 1024, 512, B=4, dtype="float16")
    assert row.choice.template == "triton::bmm"


def test_an_infinite_time_is_a_failure(tmp_path: Path) -> None:
    timed = [{"config": CONFIG, "time": float("inf")}, {"config": CONFIG, "time": 1.0}]
    (tmp_path / "a.msgpack").write_bytes(msgspec.msgpack.encode(public(timed)))
    failed, succeeded = read_dataset(tmp_path / "a.msgpack")
    assert failed.timing is None
    assert failed.failure is not None
    assert failed.failure.reason == "unknown"
    assert succeeded.time_us == 1000.0


def test_no_hardware_is_an_empty_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"hardware": {}, "version": 1}')
    assert len(read_dataset(tmp_path / "a.json")) == 0


@pytest.mark.parametrize(
    ("timed", "message"),
    [
        ({"config": CONFIG, "time": 0}, ".timed_configs[1].time: is 0.0, not a positive number of milliseconds"),
        ({"config": CONFIG, "time": -2.5}, ".timed_configs[1].time: is -2.5, not a positive number"),
        ({"config": CONFIG, "time": "1"}, ".timed_configs[1].time: Expected `float`, got `str`"),
        ({"config": CONFIG, "time": 1e306}, ".timed_configs[1].time: is 1e+306, not a positive number"),
        ({"config": CONFIG}, ".timed_configs[1]: Object missing required field `time`"),
        ({"config": CONFIG, "time": 1, "surprise": 1}, ".timed_configs[1]: Object contains unknown field `surprise`"),
        ({"config": {**CONFIG, "block_m": 0}, "time": 1}, ".timed_configs[1].config.block_m: Expected `int` >= 1"),
        ({"config": {**CONFIG, "surprise": 0}, "time": 1}, ".timed_configs[1].config: Object contains unknown field"),
        (None, ".timed_configs[1]: Expected `object`, got `null`"),
    ],
)
def test_the_error_names_shape_and_config(timed: object, message: str, refused) -> None:
    content = msgspec.json.encode(public([{"config": CONFIG, "time": 1.0}, timed], {**SHAPE, "K": 24}))
    found = refused("wrong.json", content)
    assert found.startswith(
        'hardware.NVIDIA H100.operation.mm.solution.{"B": 1, "M": 256, "M_dtype": "float16", "N": 1024, "K": 24, '
    )
    assert message in found


@pytest.mark.parametrize("wrong", [float("nan"), -float("inf"), -1.0])
def test_msgpack_times_are_checked_too(wrong: float, refused) -> None:
    content = msgspec.msgpack.encode(public([{"config": CONFIG, "time": wrong}]))
    assert f".timed_configs[0].time: is {wrong}, not a positive number" in refused("wrong.msgpack", content)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({**SHAPE, "N": -1}, ".N: Expected `int` >= 0"),
        ({**SHAPE, "surprise": 1}, ": Object contains unknown field `surprise`"),
        ({**SHAPE, "B": 2}, ": mm 256x1024x512: B is 2, but this op has no batch"),
        ("text", ": Expected `object`, got `str`"),
        ({}, ": Object missing required field `M`"),
    ],
)
def test_a_shape_that_cannot_be_is_named(shape: object, message: str, refused) -> None:
    found = refused("wrong.json", msgspec.json.encode(public([], shape)))
    assert found.startswith("hardware.NVIDIA H100.operation.mm.solution.")
    assert message in found


def test_a_shape_with_a_key_twice_is_refused(refused) -> None:
    content = public([])
    operation = content["hardware"]["NVIDIA H100"]["operation"]["mm"]
    key = next(iter(operation["solution"]))
    operation["solution"] = {key.replace('"M": 256', '"M": 256, "M": 8'): {"timed_configs": []}}
    assert refused("twice.json", msgspec.json.encode(content)).endswith("has the key 'M' twice")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"hardware": {}, "version": 2}, "version: Invalid enum value 2"),
        ({"hardware": {}}, "Object missing required field `version`"),
        ({"hardware": [], "version": 1}, "hardware: Expected `object`, got `array`"),
        ({"hardware": {"": {"operation": {}}}, "version": 1}, "hardware: Expected `str` of length >= 1"),
        ({"hardware": {"g": {}}, "version": 1}, "hardware[...]: Object missing required field `operation`"),
        ({"hardware": {}, "version": 1, "surprise": 1}, "Object contains unknown field `surprise`"),
    ],
)
def test_what_is_no_public_dataset_is_refused(content: object, message: str, refused) -> None:
    assert refused("wrong.json", msgspec.json.encode(content)).startswith(message)


def test_a_public_file_cut_anywhere_is_refused(refused) -> None:
    content = public([{"config": CONFIG, "time": 1.0}])
    for suffix, encoded in ((".json", msgspec.json.encode(content)), (".msgpack", msgspec.msgpack.encode(content))):
        for length in range(len(encoded)):
            assert refused(f"cut{suffix}", encoded[:length])
