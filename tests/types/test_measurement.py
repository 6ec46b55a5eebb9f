from __future__ import annotations

import msgspec
import pytest

from diode.errors import InvalidRecordError
from diode.types import (
    AtenChoice,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    Timing,
    TimingMethod,
)
from diode.types.known_hardware import KNOWN_HARDWARE

WHERE = (
    MMShape.of("mm", 8, 16, 24),
    AtenChoice("mm"),
    Environment(Hardware("gpu", "cuda", capability=(9, 0)), template_hashes=(("triton::mm", "0a"),)),
    TimingMethod("diode-sweep", "median"),
)
CODECS = [(msgspec.json.encode, msgspec.json.decode), (msgspec.msgpack.encode, msgspec.msgpack.decode)]


def test_a_measurement_is_a_time_or_a_failure() -> None:
    assert Measurement(*WHERE, Timing(5.0)).time_us == 5.0
    assert Measurement(*WHERE, failure=Failure("crash")).time_us is None
    for both_or_none in ({}, {"timing": Timing(5.0), "failure": Failure("crash")}):
        with pytest.raises(InvalidRecordError, match="mm 8x16x24 bfloat16 NN, aten mm: needs either a timing or a fai"):
            Measurement(*WHERE, **both_or_none)


@pytest.mark.parametrize(
    "outcome", [{"timing": Timing(5.0, 4.5, 0.01, 30, 1980)}, {"failure": Failure("timeout", "1")}]
)
def test_a_measurement_survives(outcome: dict) -> None:
    measurement = Measurement(*WHERE, **outcome)
    for encode, decode in CODECS:
        assert decode(encode(measurement), type=Measurement) == measurement


@pytest.mark.parametrize(
    ("wrong", "record_type"),
    [
        ({"time_us": 0.0}, Timing),
        ({"time_us": -5.0}, Timing),
        ({"time_us": float("nan")}, Timing),
        ({"time_us": float("inf")}, Timing),
        ({"time_us": None}, Timing),
        ({}, Timing),
        ({"time_us": 5.0, "min_us": -1.0}, Timing),
        ({"time_us": 5.0, "spread": -0.1}, Timing),
        ({"time_us": 5.0, "spread": float("inf")}, Timing),
        ({"time_us": 5.0, "repeats": 0}, Timing),
        ({"time_us": 5.0, "clock_mhz": 1.5}, Timing),
        ({"time_us": 5.0, "surprise": 1}, Timing),
        ({"reason": "mood"}, Failure),
        ({"reason": "crash", "message": "x" * 501}, Failure),
        ({"timer": "t", "statistic": "mean"}, TimingMethod),
        ({"timer": "t", "statistic": "min", "overhead_us": float("nan")}, TimingMethod),
        ({"timer": "t", "statistic": "min", "round": 0}, TimingMethod),
        ({"name": "g", "device_type": "cuda", "capability": [9]}, Hardware),
        ({"name": "g", "device_type": "cuda", "sm_count": -1}, Hardware),
        ({"name": "g", "device_type": "cuda", "memory_bandwidth_gbs": float("inf")}, Hardware),
        ({"name": "g", "device_type": "cuda", "memory_bandwidth_gbs": 0.0}, Hardware),
        ({"name": "", "device_type": "cuda"}, Hardware),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict, record_type) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=record_type)


def test_a_contradiction_is_found_when_reading_and_named_by_its_place() -> None:
    content = msgspec.to_builtins([Measurement(*WHERE, Timing(5.0))])
    content[0]["failure"] = {"reason": "crash"}
    with pytest.raises(msgspec.ValidationError, match=r"needs either a timing or a failure.* at `\$\[0\]`"):
        msgspec.json.decode(msgspec.json.encode(content), type=list[Measurement])


@pytest.mark.parametrize("hardware", KNOWN_HARDWARE.values(), ids=KNOWN_HARDWARE)
def test_known_hardware_survives(hardware: Hardware) -> None:
    assert msgspec.json.decode(msgspec.json.encode(hardware), type=Hardware) == hardware
    assert str(hardware) == hardware.name
    assert hardware.shared_memory_per_block <= hardware.shared_memory_per_sm
