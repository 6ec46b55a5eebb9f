"""Which torch and which triton the set-up takes, for the machines that it may meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_choice import (
    DEFAULT_TORCH,
    MINIMUM_TORCH,
    TRITON_FOR_TORCH,
    Environment,
    SetupError,
    plan_torch,
    release,
    triton_to_install,
)


def found(torch: str | None, triton: str | None = None, needs_triton: bool = False) -> Environment:
    return Environment((3, 11), torch, needs_triton, triton)


def test_a_machine_without_driver_gets_a_cpu_build_before_a_plain_one() -> None:
    plan = plan_torch("", None, None, driver=False)
    assert plan.candidates == (f"torch=={DEFAULT_TORCH}+cpu", f"torch=={DEFAULT_TORCH}")


def test_a_machine_with_driver_never_gets_a_cpu_build() -> None:
    plan = plan_torch("2.12.1", None, None, driver=True)
    assert plan.candidates == ("torch==2.12.1,!=2.12.1+cpu",)


def test_a_build_named_in_full_is_taken_as_it_is() -> None:
    assert plan_torch("2.13.0+cpu", None, None, driver=True).candidates == ("torch==2.13.0+cpu",)


@pytest.mark.parametrize("version", ["2.10.0", "2.11.0+cu130", "2.14.0a0+git1234567", "3.0.0"])
def test_a_recent_torch_of_the_base_interpreter_is_kept(version: str) -> None:
    plan = plan_torch("", None, version, driver=False)
    assert plan.from_base
    assert plan.candidates == ()


def test_a_torch_that_is_too_old_is_not_kept() -> None:
    plan = plan_torch("", "2.9.1", "2.4.0", driver=False)
    assert not plan.from_base
    assert plan.candidates[0] == f"torch=={DEFAULT_TORCH}+cpu"


def test_the_torch_of_the_environment_comes_before_that_of_the_base_interpreter() -> None:
    plan = plan_torch("", "2.13.0+cpu", "2.11.0", driver=False)
    assert not plan.from_base
    assert plan.candidates == ()


def test_asking_for_a_version_passes_over_others_that_are_there() -> None:
    assert plan_torch("2.12.0", "2.13.0+cpu", "2.11.0", driver=False).candidates[-1] == "torch==2.12.0"


def test_asking_for_a_version_that_is_there_keeps_it() -> None:
    assert plan_torch("2.11.0", "2.13.0+cpu", "2.11.0+cu130", driver=True).from_base
    assert plan_torch("2.13.0", "2.13.0+cpu", None, driver=False).candidates == ()


def test_a_version_is_not_taken_for_one_that_begins_alike() -> None:
    assert plan_torch("2.13.1", "2.13.10", None, driver=False).candidates


def test_a_wheel_is_named_by_its_path(tmp_path: Path) -> None:
    wheel = tmp_path / "torch-2.12.0-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    assert plan_torch(str(wheel), "2.13.0", None, driver=False).candidates == (str(wheel.resolve()),)


@pytest.mark.parametrize("asked", ["2.9.1", "1.13", "latest", "torch", "missing.whl"])
def test_what_cannot_serve_is_refused_by_name(asked: str) -> None:
    with pytest.raises(SetupError, match=asked):
        plan_torch(asked, "2.13.0", None, driver=False)


def test_a_cpu_build_gets_the_triton_of_its_version() -> None:
    assert triton_to_install(found("2.11.0+cpu")) == TRITON_FOR_TORCH[2, 11]
    assert triton_to_install(found("2.13.0+cpu", triton="3.6.0")) == TRITON_FOR_TORCH[2, 13]


def test_a_triton_that_is_right_or_that_torch_brought_is_left_alone() -> None:
    assert triton_to_install(found("2.13.0+cpu", triton=TRITON_FOR_TORCH[2, 13])) is None
    assert triton_to_install(found("2.13.0", triton="3.7.1", needs_triton=True)) is None


def test_no_triton_is_guessed_for_a_torch_of_unknown_pairing() -> None:
    assert triton_to_install(found("9.9.0")) is None


def test_every_torch_from_the_oldest_to_the_default_has_its_triton() -> None:
    supported = {(2, minor) for minor in range(MINIMUM_TORCH[1], release(DEFAULT_TORCH)[1] + 1)}
    assert supported <= set(TRITON_FOR_TORCH)
