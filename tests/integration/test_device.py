"""The facts of this machine and of what a measurement is taken with."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import date

import msgspec
import pytest
import torch
from torch._inductor.select_algorithm import TritonTemplate

import diode
from diode.errors import UnsupportedError
from diode.integration.device import current_environment, current_hardware
from diode.types import Environment, Hardware

H200 = Hardware("NVIDIA H200", "cuda", capability=(9, 0))


def test_the_cpu_is_told_by_its_name_and_memory_and_nothing_is_guessed():
    hardware = current_hardware("cpu")
    assert hardware == current_hardware(torch.device("cpu"))
    assert hardware.device_type == "cpu"
    assert hardware.name.strip()
    assert hardware.memory_bytes is not None
    assert hardware.memory_bytes > 2**28
    told = {name for name in hardware.__struct_fields__ if getattr(hardware, name) not in (None, ())}
    assert told == {"name", "device_type", "memory_bytes"}
    assert msgspec.convert(msgspec.to_builtins(hardware), Hardware, strict=True) == hardware


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "'gpu' names no device: use 'cpu', 'cuda' or 'cuda:N'"),
        ("", "names no device"),
        ("meta", "does not know devices of type 'meta'"),
        ("cuda:99", "no CUDA device can be used here|there is no device cuda:99: this machine has"),
    ],
)
def test_a_device_that_cannot_be_had_is_refused_with_what_to_do(device, message):
    with pytest.raises(UnsupportedError, match=message):
        current_hardware(device)


def test_the_environment_tells_all_that_a_time_depends_on():
    hardware = current_hardware("cpu")
    environment = current_environment(hardware, command="diode collect")
    assert environment.hardware is hardware
    assert environment.torch == torch.__version__
    assert environment.python == platform.python_version()
    assert environment.diode == diode.__version__
    assert environment.command == "diode collect"
    assert environment.driver == ""
    assert abs((date.today() - date.fromisoformat(environment.taken)).days) <= 1  # noqa: DTZ011  # either zone
    assert msgspec.convert(msgspec.to_builtins(environment), Environment, strict=True) == environment


def test_the_templates_of_this_torch_are_told_by_their_hashes():
    hashes = dict(current_environment(H200).template_hashes)
    assert hashes["triton::mm"] == TritonTemplate.all_templates["mm"].src_hash
    assert {"triton::bmm", "triton::mm_persistent_tma"} <= hashes.keys()
    assert all(hashes.values())
    assert list(hashes) == sorted(hashes)


def test_the_environment_is_the_same_before_and_after_a_compile():
    torch.compile(torch.sin)(torch.ones(3))
    told = "from diode.integration.device import *; import msgspec, sys; " + (
        "sys.stdout.buffer.write(msgspec.json.encode(current_environment(current_hardware('cpu'), 'same')))"
    )
    answer = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True)
    there = msgspec.json.decode(answer.stdout, type=Environment)
    here = current_environment(current_hardware("cpu"), "same")
    # the day and the checkout may change meanwhile
    assert msgspec.structs.replace(there, taken=here.taken, commit=here.commit) == here


def test_the_commit_can_be_named_where_there_is_no_checkout(monkeypatch):
    monkeypatch.setenv("DIODE_COMMIT", "0123abcd")
    assert current_environment(H200).commit == "0123abcd"


def test_the_commit_of_a_checkout_is_told(monkeypatch):
    monkeypatch.delenv("DIODE_COMMIT", raising=False)
    commit = current_environment(H200).commit.removesuffix("-dirty")
    assert commit == "" or (len(commit) == 40 and set(commit) <= set("0123456789abcdef"))
