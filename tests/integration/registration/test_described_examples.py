"""The usage that the project was described by, call by call: on the CPU, and with today's `V.choices`."""

from __future__ import annotations

from inspect import signature

import pytest
import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

import diode
from diode.integration import (
    discover_and_register_integrations,
    get_integration_status,
    integrate_all,
    register_integration,
)
from diode.integration.inductor_integration import (
    DiodeInductorChoices,
    create_diode_choices,
    install_diode_choices,
)
from diode.integration.matmul_integration import create_matmul_integration


@pytest.fixture(autouse=True)
def _library_kernels():
    """Nothing is benchmarked, and no C++ compiled."""
    with config.patch(max_autotune_gemm_backends="ATEN"):
        yield


def compile_a_matmul() -> None:
    torch._dynamo.reset()

    @torch.compile(mode="max-autotune")
    def my_matmul(a, b):
        return torch.mm(a, b)

    a, b = torch.randn(16, 24), torch.randn(24, 8)
    torch.testing.assert_close(my_matmul(a, b), torch.mm(a, b))


def test_automatic_integration(model):
    discover_and_register_integrations()
    results = integrate_all()
    assert results["matmul"]
    assert get_integration_status() == results
    compile_a_matmul()
    assert diode.get_stats()["total_calls"] >= 1


def test_manual_integration(model):
    integration = create_matmul_integration(enable_fallback=True)
    register_integration(integration, execute_order=1)
    results = integrate_all()
    assert results["matmul"].models == ("made-up 1",)
    compile_a_matmul()
    assert integration.choices.get_stats()["total_calls"] >= 1


def test_direct_usage(model):
    choices = install_diode_choices(
        model_path=str(model),
        device="cpu",
        top_k_configs=3,
        performance_threshold=1.1,
    )
    compile_a_matmul()
    assert choices.get_stats()["total_calls"] >= 1
    assert choices is V.choices


def test_manual_usage_and_the_handler_s_restoring(model):
    choices = create_diode_choices(
        model_path=str(model),
        device="cpu",
        top_k_configs=5,
    )
    assert isinstance(choices, DiodeInductorChoices)
    assert isinstance(choices, InductorChoices)
    old_handler = V.choices
    V.set_choices_handler(choices)
    with config.patch(fx_graph_cache=False):
        compile_a_matmul()
    V.set_choices_handler(old_handler)
    counted = choices.get_stats()["total_calls"]
    assert counted >= 1
    assert V.choices is old_handler
    with config.patch(fx_graph_cache=False):
        compile_a_matmul()
    assert choices.get_stats()["total_calls"] == counted


def test_the_statistics_have_the_names_that_were_promised(model):
    stats = create_diode_choices(model_path=model).get_stats()
    promised = {
        "total_calls",
        "decisions",
        "model_selections",
        "configs_filtered",
        "fallback_no_model",
        "fallback_unsupported_op",
        "fallback_feature_extraction",
        "fallback_prediction",
        "fallback_empty_result",
        "fallback_hardware_mismatch",
        "fallback_error",
    }
    assert promised <= stats.keys()
    assert {stats[name] for name in promised} == {0}


def test_the_defaults_are_those_that_were_promised():
    """With no model named, the best at hand is looked for."""
    for make in (DiodeInductorChoices, create_diode_choices, install_diode_choices):
        defaults = {name: value.default for name, value in signature(make).parameters.items()}
        assert defaults["model_path"] is None
        assert (defaults["device"], defaults["top_k_configs"]) == ("cpu", 3)
        assert (defaults["enable_fallback"], defaults["performance_threshold"]) == (True, 1.1)
