"""Listening to real autotuning on the CPU: what is new, what is remembered, and what is left when listening ends."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch._inductor import config
from torch._inductor.codecache import PersistentCache
from torch._inductor.select_algorithm import AlgorithmSelectorCache, get_algorithm_selector_cache
from torch._inductor.utils import fresh_cache

from diode.errors import UnsupportedError
from diode.integration.feedback import (
    SERVED_FROM_CACHE,
    FreshTimings,
    autotuning_observed,
    everything_measured,
    read_event,
    remember_offered,
    why_not_measured,
)
from diode.types import AtenChoice, MMShape, Timing

A, B = torch.randn(64, 32), torch.randn(32, 48)


def twin_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


@contextmanager
def autotuning(**settings):
    chosen = {"max_autotune": True, "autotune_num_choices_displayed": 0, "external_matmul": [twin_mm], **settings}
    with fresh_cache(), config.patch(chosen), torch.no_grad():
        yield


def compile_mm(rows=64, **options):
    torch.compiler.reset()
    return torch.compile(torch.mm, **options)(A[:rows], B)


class Heard:
    """Reads each event at once, while Inductor's graph is there, as a saver must."""

    def __init__(self):
        self.events, self.reasons = [], []

    def saver(self, timings, name, input_nodes, choices, *_rest):
        self.reasons.append(why_not_measured(timings, choices))
        if self.reasons[-1] is None:
            self.events.append(read_event(timings, name, input_nodes, choices))

    @staticmethod
    def preprocessing(choices):
        remember_offered(choices)
        return choices

    def observed(self):
        return autotuning_observed(self.saver, self.preprocessing)


def test_an_event_tells_problem_device_and_every_choice():
    heard = Heard()
    with autotuning(), heard.observed():
        compile_mm()
    (event,) = heard.events
    assert event.problem == MMShape.of("mm", 64, 48, 32, dtype="float32")
    assert event.device == torch.device("cpu")
    assert [choice for choice, _, _ in event.outcomes] == [AtenChoice("mm"), AtenChoice("twin_mm")]
    assert all(isinstance(outcome, Timing) for _, _, outcome in event.outcomes)


def test_times_are_microseconds_of_inductor_s_milliseconds():
    told = {}

    def saver(timings, name, input_nodes, choices, *_rest):
        event = read_event(timings, name, input_nodes, choices)
        outcomes = [outcome for _, _, outcome in event.outcomes]
        told.update({outcome.time_us: timings[caller] for caller, outcome in zip(timings, outcomes, strict=True)})

    with autotuning(), autotuning_observed(saver, lambda choices: choices):
        compile_mm()
    assert len(told) == 2
    for microseconds, milliseconds in told.items():
        assert microseconds == pytest.approx(1000 * milliseconds)


def test_remembered_times_are_told_from_new_ones_in_either_order():
    heard = Heard()
    with autotuning(fx_graph_cache=False), heard.observed():
        compile_mm()
        compile_mm()
        with fresh_cache():
            compile_mm()
        compile_mm(16)
    assert heard.reasons == [None, SERVED_FROM_CACHE, None, None]


def test_listeners_share_one_mark_and_the_last_one_removes_it():
    selector = get_algorithm_selector_cache()
    first, second = Heard(), Heard()
    with autotuning():
        with first.observed():
            with second.observed():
                compile_mm()
            assert "autotune" in vars(selector)
            compile_mm(16)
        assert "autotune" not in vars(selector)
        assert selector.autotune.__func__ is AlgorithmSelectorCache.autotune
    assert (first.reasons, second.reasons) == ([None, None], [None])


def test_a_wrapper_that_somebody_put_around_the_mark_meanwhile_stays():
    selector = get_algorithm_selector_cache()
    heard = Heard()
    calls = []
    try:
        with autotuning(), heard.observed():
            marking = selector.autotune

            def wrapper(*args, **kwargs):
                calls.append("wrapper")
                return marking(*args, **kwargs)

            selector.autotune = wrapper
            compile_mm()
        assert selector.autotune is wrapper
    finally:
        del selector.autotune
    assert (heard.reasons, calls) == ([None], ["wrapper"])


def test_a_mapping_that_is_not_marked_counts_as_remembered():
    assert why_not_measured({}, []) == SERVED_FROM_CACHE
    assert why_not_measured(FreshTimings(), []) == "timed by a benchmarker that diode does not know"


def test_a_torch_without_the_interface_is_refused_by_name(monkeypatch):
    monkeypatch.delattr(PersistentCache, "lookup")
    selector = get_algorithm_selector_cache()
    before = list(selector.feedback_saver_fns)
    refused = pytest.raises(UnsupportedError, match=r"has no AlgorithmSelectorCache.lookup.*use torch 2\.10")
    with refused, Heard().observed():
        pass
    assert selector.feedback_saver_fns == before


def test_symbolic_sizes_make_a_kernel_that_serves_many_sizes():
    heard = Heard()
    with everything_measured(), torch.no_grad(), heard.observed():
        torch.compiler.reset()
        first = torch.randn(2, 24, 32)
        torch._dynamo.mark_dynamic(first, 1)
        torch.compile(torch.bmm)(first, torch.randn(2, 32, 40))
    (event,) = heard.events
    assert event.problem == MMShape.of("bmm", 24, 40, 32, B=2, dtype="float32")
    assert {type(choice).__name__: method.kernel for choice, method, _ in event.outcomes} == {
        "AtenChoice": "backend",
        "CppTemplateConfig": "family",
    }


def test_everything_measured_keeps_its_files_in_the_folder_and_leaves_none(tmp_path):
    heard = Heard()
    before = config.max_autotune, config.freezing
    written = []

    def preprocessing(choices):
        written.extend(Path(tmp_path).iterdir())
        return choices

    for _ in range(2):
        with (
            everything_measured(str(tmp_path)),
            torch.no_grad(),
            config.patch(external_matmul=[twin_mm]),
            autotuning_observed(heard.saver, preprocessing),
        ):
            compile_mm()
    assert heard.reasons == [None, None]
    assert len(set(written)) == 2
    assert list(tmp_path.iterdir()) == []
    assert before == (config.max_autotune, config.freezing)
