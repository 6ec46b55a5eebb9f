"""Diode in force for a whole process: in every thread, known to torch's caches, and gone without a trace."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from tests.integration.by_torch import REGISTRATION, THREADS_COMPILE_AT_ONCE
from tests.integration.choices.models import write_model
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.utils import fresh_cache
from torch._inductor.virtualized import V

import diode
from diode.errors import IntegrationError, UsageError
from diode.integration import get_integration_status
from diode.integration.choices import DiodeInductorChoices
from diode.integration.inductor_integration import (
    create_choices_factory,
    create_diode_choices,
    install_diode_choices,
)
from diode.integration.installation import probe


def in_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def calls():
    return diode.get_stats()["total_calls"]


def test_a_dummy_tells_the_interface_and_is_taken_back():
    before = V.choices
    assert probe() == REGISTRATION
    assert V.choices is before


@pytest.mark.parametrize("missing", ["the hook", "who calls it"])
def test_without_the_interface_nothing_is_changed(missing, model, monkeypatch, compile_bmm):
    if missing == "the hook":
        monkeypatch.delattr(InductorChoices, "_finalize_template_configs")
    else:
        monkeypatch.setattr(InductorChoices, "get_template_configs", lambda *args, **kwargs: [])
    status = diode.enable()["matmul"]
    assert status.state == "interface unavailable"
    assert "install torch 2.10 or later" in status.message
    assert type(V.choices) is InductorChoices
    assert config.inductor_choices_class is None
    assert not config.triton.enable_persistent_tma_matmul


def test_enabled_it_says_how_and_with_what(model):
    status = diode.enable()["matmul"]
    assert status
    assert (status.path, status.models) == (REGISTRATION, ("made-up 1",))
    assert status.configs == ("triton.enable_persistent_tma_matmul",)
    assert get_integration_status()["matmul"] == status
    assert config.triton.enable_persistent_tma_matmul
    assert not config.max_autotune


def test_without_a_model_it_is_not_registered(compile_bmm):
    status = diode.enable()["matmul"]
    assert status.state == "no model"
    assert "install torch-diode" in status.message
    assert type(V.choices) is InductorChoices
    assert diode.get_stats() == {}


def test_a_model_that_cannot_be_read_is_told(model):
    model.with_suffix(".json").write_text("{")
    status = diode.enable()["matmul"]
    assert status.state == "no model"
    assert str(model.with_suffix(".json")) in status.message


def test_an_option_that_the_user_has_set_stays_his(model):
    with config.patch({"triton.enable_persistent_tma_matmul": True}):
        assert diode.enable()["matmul"].configs == ()
        diode.disable()
        assert config.triton.enable_persistent_tma_matmul


def test_a_model_without_tma_switches_nothing_on(model, tmp_path, monkeypatch):
    path = write_model(tmp_path / "plain.safetensors", templates=("aten", "triton::mm"))
    monkeypatch.setenv("DIODE_MODEL_PATH", str(path))
    assert diode.enable()["matmul"].configs == ()
    assert not config.triton.enable_persistent_tma_matmul


def test_each_thread_has_it_and_none_after_it_was_disabled(model):
    def handler():
        return type(V.choices)

    diode.enable()
    assert issubclass(in_thread(handler), DiodeInductorChoices)
    assert in_thread(lambda: config.triton.enable_persistent_tma_matmul)
    diode.disable()
    assert in_thread(handler) is InductorChoices
    assert not in_thread(lambda: config.triton.enable_persistent_tma_matmul)
    assert get_integration_status()["matmul"].state == "off"


def test_a_thread_that_compiled_before_is_reached_too(model, compile_bmm):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compile_bmm).result()
        diode.enable()
        pool.submit(compile_bmm, 32).result()
        assert calls() == 1
        diode.disable()
        pool.submit(compile_bmm, 48).result()
        assert calls() == 1


def test_the_backward_graph_is_compiled_by_it_in_whichever_thread(model, compile_bmm):
    diode.enable()
    torch._dynamo.reset()  # with sizes that are symbols by now, the backward graph is compiled at once
    a = torch.randn(2, 16, 24, requires_grad=True)
    b = torch.randn(2, 24, 8, requires_grad=True)
    total = torch.compile(torch.bmm, options={"max_autotune": True, "max_autotune_gemm_backends": "ATEN"})(a, b).sum()
    assert calls() == 1
    thread = threading.Thread(target=total.backward)
    thread.start()
    thread.join()
    assert calls() == 3
    torch.testing.assert_close(a.grad, b.sum(dim=2).unsqueeze(1).expand_as(a))


def test_compiles_in_several_threads_are_all_counted(model):
    diode.enable()

    def work(rows):
        a, b = torch.randn(2, rows, 24), torch.randn(2, 24, 8)
        compiled = torch.compile(
            lambda a, b: torch.bmm(a, b),
            options={"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN"},
            dynamic=False,
        )
        with turn:
            torch.testing.assert_close(compiled(a, b), torch.bmm(a, b))

    turn = nullcontext() if THREADS_COMPILE_AT_ONCE else threading.Lock()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(16, 80, 16)))
    assert calls() == 4


def test_torch_s_caches_tell_models_and_policies_apart(model, compile_bmm):
    plain = compile_bmm()
    assert plain["fxgraph_cache_miss"] == 1
    install_diode_choices(model, top_k_configs=1)
    assert compile_bmm()["fxgraph_cache_miss"] == 1
    assert compile_bmm()["fxgraph_cache_hit"] == 1
    install_diode_choices(model, top_k_configs=2)
    assert compile_bmm()["fxgraph_cache_miss"] == 1
    install_diode_choices(model, top_k_configs=1)
    assert compile_bmm()["fxgraph_cache_hit"] == 1
    diode.disable()
    assert compile_bmm()["fxgraph_cache_hit"] == 1


def test_another_model_misses_the_cache(model, tmp_path, compile_bmm):
    install_diode_choices(model)
    compile_bmm()
    install_diode_choices(write_model(tmp_path / "other.safetensors", library=3.0))
    assert compile_bmm()["fxgraph_cache_miss"] == 1


def test_inside_disabled_compiles_are_torch_s_own(model, compile_bmm):
    diode.enable()
    compile_bmm()
    with diode.disabled():
        assert type(V.choices) is InductorChoices
        assert not get_integration_status()["matmul"]
        compile_bmm(32)
    assert calls() == 1
    assert get_integration_status()["matmul"]
    compile_bmm(48)
    assert calls() == 2


def test_what_was_disabled_stays_so_after_disabled(model):
    diode.enable()
    diode.disable()
    with diode.disabled():
        pass
    assert get_integration_status()["matmul"].state == "off"


class Counting(InductorChoices):
    """A handler of the user's own."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def uuid(self):
        return "counting"

    def _finalize_template_configs(self, *args, **kwargs):
        self.seen += 1
        return super()._finalize_template_configs(*args, **kwargs)


def test_a_handler_that_was_set_by_hand_has_the_last_word_and_comes_back(model, compile_bmm):
    own = Counting()
    V.set_choices_handler(own)
    diode.enable()
    compile_bmm()
    assert (calls(), own.seen) == (1, 1)
    diode.disable()
    assert V.choices is own
    compile_bmm(32)
    assert (calls(), own.seen) == (1, 2)
    V.set_choices_handler(InductorChoices())


def test_a_handler_that_was_set_while_disabled_is_asked_from_then_on(model, compile_bmm):
    installed = install_diode_choices(model)
    alone = installed.uuid()
    compile_bmm()
    diode.disable()
    own = Counting()
    V.set_choices_handler(own)
    diode.enable()
    assert V.choices.uuid() != alone
    compile_bmm(32)
    assert (calls(), own.seen) == (2, 1)
    assert installed.get_stats() == diode.get_stats()
    with diode.disabled():
        assert V.choices is own
        V.set_choices_handler(InductorChoices())
    assert V.choices.uuid() == alone
    compile_bmm(48)
    assert (calls(), own.seen) == (3, 1)


def test_a_thread_that_kept_the_handler_from_before_asks_whom_the_process_asks(model, compile_bmm):
    kept = install_diode_choices(model)
    own = Counting()
    with diode.disabled():
        V.set_choices_handler(own)
    # Without its caches torch asks no factory, and so nobody puts the present handler in place.
    with V.set_choices_handler(kept):
        compile_bmm(fx_graph_cache=False)
    assert (calls(), own.seen) == (1, 1)
    diode.disable()
    V.set_choices_handler(InductorChoices())


def test_it_takes_none_of_its_own_handlers_for_a_user_s(model, compile_bmm):
    """A thread in which diode was not disabled still has one."""
    own = Counting()
    V.set_choices_handler(own)
    diode.enable()
    first = V.choices
    diode.disable()
    V.set_choices_handler(first)
    diode.enable()
    compile_bmm()
    assert (calls(), own.seen) == (1, 1)
    diode.disable()
    assert V.choices is own
    V.set_choices_handler(InductorChoices())


def test_what_the_configuration_named_before_is_asked_and_comes_back(model, compile_bmm):
    own = Counting()

    def factory():
        return own

    config.inductor_choices_class = factory
    try:
        diode.enable()
        compile_bmm()
        assert (calls(), own.seen) == (1, 1)
        diode.disable()
        assert config.inductor_choices_class is factory
    finally:
        config.inductor_choices_class = None


def test_options_of_one_compile_are_that_one_s_alone(model, compile_bmm):
    factory = create_choices_factory(model, top_k_configs=1)
    compile_bmm()
    counted = compile_bmm(inductor_choices_class=factory)
    assert counted["fxgraph_cache_miss"] == 1
    assert factory.handler.get_stats()["total_calls"] == 1
    compile_bmm(32)
    assert factory.handler.get_stats()["total_calls"] == 1
    assert compile_bmm(inductor_choices_class=factory)["fxgraph_cache_hit"] == 1


def test_options_of_one_compile_win_over_what_is_installed(model, compile_bmm):
    diode.enable()
    factory = create_choices_factory(model, top_k_configs=1)
    compile_bmm(inductor_choices_class=factory)
    assert (calls(), factory.handler.get_stats()["total_calls"]) == (0, 1)
    compile_bmm(32)
    assert (calls(), factory.handler.get_stats()["total_calls"]) == (1, 1)
    # Without its caches torch asks no factory, and the thread's handler is the one that was used last.
    compile_bmm(inductor_choices_class=factory)
    compile_bmm(48, fx_graph_cache=False)
    assert calls() == 2


def test_by_hand_for_one_thread(model, compile_bmm):
    handler = create_diode_choices(model_path=model, device="cpu", top_k_configs=5)
    old = V.choices
    V.set_choices_handler(handler)
    compile_bmm(fx_graph_cache=False)
    V.set_choices_handler(old)
    compile_bmm(32, fx_graph_cache=False)
    assert handler.get_stats()["total_calls"] == 1
    with V.set_choices_handler(handler):
        compile_bmm(48, fx_graph_cache=False)
    assert handler.get_stats()["total_calls"] == 2


def test_installed_without_a_model_it_falls_back_or_refuses(tmp_path, compile_bmm):
    nowhere = tmp_path / "nowhere.safetensors"
    with pytest.raises(IntegrationError, match="no such file or folder"):
        install_diode_choices(nowhere, enable_fallback=False)
    assert type(V.choices) is InductorChoices
    install_diode_choices(nowhere)
    compile_bmm()
    assert calls() == 1


def test_parameters_that_make_no_sense_are_refused_before_anything_changes(model):
    with pytest.raises((UsageError, IntegrationError), match="top_k_configs=0"):
        install_diode_choices(model, top_k_configs=0)
    assert type(V.choices) is InductorChoices
    assert config.inductor_choices_class is None


def test_a_pickled_factory_differs_with_policy_and_model(model, tmp_path):
    other = write_model(tmp_path / "other.safetensors", library=3.0)
    factories = [create_choices_factory(model, top_k_configs=k) for k in (1, 1, 2)] + [create_choices_factory(other)]
    first, same, *different = [pickle.dumps(factory) for factory in factories]
    assert first == same
    assert len({first, *different}) == 3
    assert pickle.loads(first).handler.uuid() == factories[0].handler.uuid()


def _child(connection, model):
    torch.set_num_threads(1)  # the threads of the library that multiplies are not there in a forked process
    torch._dynamo.reset()  # it begins with what its parent had compiled
    a, b = torch.randn(2, 16, 24), torch.randn(2, 24, 8)
    with fresh_cache():
        found = torch.compile(torch.bmm, options={"max_autotune": True, "max_autotune_gemm_backends": "ATEN"})(a, b)
    connection.send((torch.allclose(found, torch.bmm(a, b), atol=1e-5), calls()))


def test_a_forked_process_has_it_too(model):
    diode.enable()
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(there, model), daemon=True)
    child.start()
    assert here.poll(120)
    assert here.recv() == (True, 1)
    child.join()


def test_a_compile_in_a_subprocess_is_diode_s_and_right(model):
    """What torch hands to its subprocess can be pickled, and its configuration is understood there."""
    diode.enable()
    from torch._inductor import compile_fx

    a, b = torch.randn(2, 16, 24), torch.randn(2, 24, 8)
    mode = compile_fx.fx_compile_mode
    compile_fx.fx_compile_mode = compile_fx.FxCompileMode.SUBPROCESS
    try:
        torch._dynamo.reset()
        found = torch.compile(torch.bmm, options={"max_autotune": True, "max_autotune_gemm_backends": "ATEN"})(a, b)
        torch.testing.assert_close(found, torch.bmm(a, b))
    finally:
        compile_fx.fx_compile_mode = mode
