"""`DIODE_LEARN`: what real compiles on the CPU benchmark is kept, and answers the next time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from tests.integration.choices.models import write_model
from torch._inductor import config, select_algorithm
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.utils import fresh_cache

import diode
from diode.integration.inductor_integration import install_diode_choices
from diode.learning.store import Store
from diode.types import AtenChoice, MMShape, TritonGEMMConfig

A, B = torch.randn(64, 32), torch.randn(32, 48)
PROBLEM = MMShape.of("mm", 64, 48, 32, dtype="float32")


def kept_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


def compiled(a=A, b=B, **settings):
    """Autotunes between ATen and a kernel of this test's own: no C++ to be compiled."""
    chosen = {"max_autotune": True, "autotune_num_choices_displayed": 0, "external_matmul": [kept_mm], **settings}
    torch._dynamo.reset()
    with config.patch(chosen), torch.no_grad():
        torch.testing.assert_close(torch.compile(torch.mm, dynamic=False)(a, b), torch.mm(a, b))


@pytest.fixture
def store(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "deep" / "store"
    monkeypatch.setenv("DIODE_LEARN", str(folder))
    return folder


def rows_in(store: Path) -> list[int]:
    return sorted(tuned.problem.M for tuned in Store.read_whole(store).autotunings)


def test_what_is_benchmarked_is_kept_even_where_there_is_no_model(store):
    assert diode.enable()["matmul"]
    compiled()
    (tuned,) = Store.read_whole(store).autotunings
    assert tuned.problem == PROBLEM
    assert {outcome.choice for outcome in tuned.outcomes} == {AtenChoice("mm"), AtenChoice("kept_mm")}
    assert all(outcome.timing is not None and 0.1 < outcome.timing.time_us < 1e6 for outcome in tuned.outcomes)
    assert (tuned.environment.hardware.device_type, tuned.environment.torch) == ("cpu", torch.__version__)


def test_without_it_nothing_is_kept_and_nobody_listens(model, tmp_path):
    selector = get_algorithm_selector_cache()
    before = list(selector.feedback_saver_fns), list(selector.preprocessing_fns), selector.autotune
    diode.enable()
    assert before == (selector.feedback_saver_fns, selector.preprocessing_fns, selector.autotune)
    compiled()
    assert not list(tmp_path.rglob("*.learned"))


def test_cached_times_are_not_kept_as_new(store):
    diode.enable()
    compiled(fx_graph_cache=False)
    compiled(fx_graph_cache=False)
    compiled(A[:16], fx_graph_cache=False)
    assert rows_in(store) == [16, 64]


def test_disabled_it_keeps_nothing_and_leaves_other_listeners(store):
    heard = []

    def other(timings, name, *_rest):
        heard.append(name)

    selector = get_algorithm_selector_cache()
    selector.add_feedback_saver(other)
    try:
        diode.enable()
        compiled()
        with diode.disabled():
            compiled(A[:16])
        compiled(A[:32])
        diode.disable()
        compiled(A[:48])
        assert selector.feedback_saver_fns == [other]
    finally:
        selector.feedback_saver_fns = [known for known in selector.feedback_saver_fns if known is not other]
    assert rows_in(store) == [32, 64]
    assert heard == ["mm"] * 4


def test_a_store_that_cannot_be_written_costs_no_compile(store, caplog):
    store.parent.mkdir()
    store.write_text("a file where a folder should be")
    diode.enable()
    with caplog.at_level(logging.WARNING, "diode"):
        compiled()
        compiled(A[:16])
    told = [record.getMessage() for record in caplog.records if "could not record" in record.getMessage()]
    assert len(told) == 1
    assert str(store) in told[0]


def test_what_won_is_taken_the_next_time_without_benchmarking(store, tmp_path, monkeypatch):
    """The model likes templates, which are slow here; two rounds with nothing but the store between them."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    class NoGpu:
        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return 0

    monkeypatch.setattr(driver, "_active", NoGpu(), raising=False)
    monkeypatch.setattr(select_algorithm.TritonTemplateCaller, "precompile", lambda caller: None)
    monkeypatch.setattr(select_algorithm.TritonTemplateCaller, "benchmark", lambda caller, *inputs, out=None: 1e4)

    model = write_model(tmp_path / "likes_templates.safetensors", library=3.0)

    def round(top_k):
        handler = install_diode_choices(model, top_k_configs=top_k, on_mismatch="use", performance_threshold=1e6)
        with fresh_cache():
            compiled(cpu_backend="triton", external_matmul=[])
        return handler.get_stats(), diode.last_decision()

    stats, decision = round(3)
    assert (stats["model_selections"], stats["store_answers"]) == (1, 0)
    assert isinstance(decision.picks[0].choice, TritonGEMMConfig)
    (tuned,) = Store.read_whole(store).autotunings
    assert {outcome.choice for outcome in tuned.outcomes} == {pick.choice for pick in decision.picks}
    stats, decision = round(1)
    assert (stats["model_selections"], stats["store_answers"]) == (1, 1)
    assert [pick.choice for pick in decision.picks] == [AtenChoice("mm")]
    assert decision.compared == 3
    assert len(Store.read_whole(store).autotunings) == 1
