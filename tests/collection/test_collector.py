"""MatmulDatasetCollector over real compiles on the CPU.

Most of them choose between ATen and a kernel of the test's own, which `external_matmul` adds: no C++ to be compiled.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType

import pytest
import torch
from torch._inductor import config
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.utils import fresh_cache

from diode.collection.collector import MatmulDatasetCollector
from diode.errors import CollectionError
from diode.types import AtenChoice, CppTemplateConfig, Hardware, MMShape, OtherProblem, TimingMethod

A, B = torch.randn(64, 32), torch.randn(32, 48)
ATEN_AND_OWN = {AtenChoice("mm"), AtenChoice("own_mm")}


def own_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


def spare_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


def failing_mm(a, b, *, out=None):
    raise RuntimeError("this kernel always fails")


@contextmanager
def autotuning(**settings):
    """Everything is measured anew inside, in all threads of the block."""
    chosen = {"max_autotune": True, "autotune_num_choices_displayed": 0, "external_matmul": [own_mm], **settings}
    with fresh_cache(), config.patch(chosen), torch.no_grad():
        yield


def compiled(function, *arguments, **options):
    torch.compiler.reset()
    result = torch.compile(function, **options)(*arguments)
    torch.testing.assert_close(result, function(*arguments))
    return result


@contextmanager
def other_listener():
    """Somebody else's feedback saver and preprocessing function."""
    heard, seen = [], []

    def saver(timings, name, *_rest):
        heard.append(name)

    def preprocessing(choices):
        seen.append(len(choices))
        return choices

    selector = get_algorithm_selector_cache()
    selector.add_feedback_saver(saver)
    selector.add_preprocessing_fn(preprocessing)
    try:
        yield heard, seen
    finally:
        selector.feedback_saver_fns = [known for known in selector.feedback_saver_fns if known is not saver]
        selector.preprocessing_fns = [known for known in selector.preprocessing_fns if known is not preprocessing]


@contextmanager
def other_preprocessing(function):
    """Somebody else's preprocessing function, which comes before that of a collector entered inside."""
    selector = get_algorithm_selector_cache()
    selector.add_preprocessing_fn(function)
    try:
        yield
    finally:
        selector.preprocessing_fns = [known for known in selector.preprocessing_fns if known is not function]


def test_a_measured_mm_is_recorded_with_where_and_how():
    with autotuning(), MatmulDatasetCollector(command="what was called") as collector:
        compiled(torch.mm, A, B)
    rows = list(collector.dataset())
    assert {row.choice for row in rows} == ATEN_AND_OWN
    assert {row.problem for row in rows} == {MMShape.of("mm", 64, 48, 32, dtype="float32")}
    assert {row.method for row in rows} == {TimingMethod("inductor", "median")}
    assert all(row.time_us is not None and 0.1 < row.time_us < 1e6 for row in rows)
    (environment,) = collector.dataset().environments
    assert environment.hardware.device_type == "cpu"
    assert (environment.torch, environment.command) == (torch.__version__, "what was called")
    assert (len(collector), collector.events, collector.problems_seen) == (2, 1, 1)
    assert (collector.skipped, collector.errors) == ({}, {})


def test_every_op_is_recorded_with_cpp_and_library_kernels():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(32, 48)

        def forward(self, x, y):
            return self.linear(x), torch.mm(x, y)

    model = Model().eval()
    with autotuning(freezing=True), MatmulDatasetCollector() as collector:
        torch.compiler.reset()
        torch.compile(model, dynamic=False)(A, B)
    dataset = collector.dataset()
    assert collector.events == 2
    assert {row.choice for row in dataset if row.problem.op == "mm"} == ATEN_AND_OWN
    linear = {type(row.choice): row for row in dataset if row.problem.op != "mm"}
    assert linear.keys() == {AtenChoice, CppTemplateConfig}
    assert {row.method.kernel for row in linear.values()} == {"backend", "static"}
    assert dict(linear[CppTemplateConfig].choice.fields).keys() >= {"block_m", "block_n", "block_k", "num_threads"}
    # Inductor packs the weights where it can and then calls the op otherwise: nothing is dropped for that
    problem = linear[AtenChoice].problem
    assert isinstance(problem, OtherProblem | MMShape)
    if isinstance(problem, OtherProblem):
        assert problem.inputs[0].sizes == (64, 32)
        assert problem.out is not None
        assert problem.out.sizes == (64, 48)


def test_symbolic_sizes_are_recorded_by_their_hints():
    with autotuning(), MatmulDatasetCollector() as collector:
        compiled(torch.mm, A, B, dynamic=True)
    assert collector.dataset().problems == (MMShape.of("mm", 64, 48, 32, dtype="float32"),)
    assert collector.errors == {}


def test_a_kernel_that_fails_when_run_is_recorded_as_a_failure():
    with autotuning(external_matmul=[failing_mm]), MatmulDatasetCollector() as collector:
        compiled(torch.mm, A, B)
    outcomes = {row.choice: row for row in collector.dataset()}
    failed = outcomes[AtenChoice("failing_mm")]
    assert (failed.time_us, failed.failure and failed.failure.reason) == (None, "unknown")
    assert outcomes[AtenChoice("mm")].time_us is not None
    assert len(collector) == 2


def test_a_choice_that_does_not_compile_is_recorded_though_inductor_drops_it():
    def fail_to_compile(choices):
        for choice in choices:
            if choice.name == "spare_mm":
                choice.mark_failed()  # as Inductor does when precompiling raises
        return choices

    settings = autotuning(external_matmul=[own_mm, spare_mm])
    with settings, other_preprocessing(fail_to_compile), MatmulDatasetCollector() as collector:
        compiled(torch.mm, A, B)
    failures = {row.choice: row.failure for row in collector.dataset()}
    dropped = failures.pop(AtenChoice("spare_mm"))
    assert dropped is not None
    assert dropped.reason == "compile_error"
    assert failures == dict.fromkeys(ATEN_AND_OWN)


def test_times_from_torch_s_cache_are_never_recorded_as_new():
    with autotuning(fx_graph_cache=False):
        compiled(torch.mm, A, B)  # nobody listens yet
        with MatmulDatasetCollector() as collector:
            compiled(torch.mm, A, B)
            assert (len(collector), collector.events) == (0, 0)
            assert collector.skipped == {"served from torch's autotuning cache": 1}
            compiled(torch.mm, A[:16], B)
            compiled(torch.mm, A[:16], B)
    assert collector.dataset().problems == (MMShape.of("mm", 16, 48, 32, dtype="float32"),)
    assert (len(collector), collector.events) == (2, 1)
    assert collector.skipped == {"served from torch's autotuning cache": 2}


def test_times_of_an_unknown_benchmarker_are_not_recorded():
    with autotuning(profile_bandwidth_with_do_bench_using_profiling=True), MatmulDatasetCollector() as collector:
        compiled(torch.mm, A, B)
    assert len(collector) == 0
    assert collector.skipped == {"timed by a benchmarker that diode does not know": 1}


def test_an_error_while_recording_costs_one_event_and_not_the_compile(caplog):
    def spoil(choices):
        for choice in choices:
            choice.annotations["ktc"] = "not what it was"
        return choices

    with autotuning(), MatmulDatasetCollector() as collector:
        with other_preprocessing(spoil), caplog.at_level(logging.WARNING, "diode"):
            compiled(torch.mm, A, B)
            compiled(torch.mm, A[:16], B)
        compiled(torch.mm, A[:32], B)
    assert collector.dataset().problems == (MMShape.of("mm", 32, 48, 32, dtype="float32"),)
    assert sum(collector.errors.values()) == 2
    (told,) = [record for record in caplog.records if record.name.startswith("diode")]
    assert "the compile goes on" in told.getMessage()


def test_an_error_while_looking_at_the_choices_does_not_cost_the_compile():
    def close(choices):
        for choice in choices:
            choice.annotations = MappingProxyType(choice.annotations)
        return choices

    with autotuning(), other_preprocessing(close), MatmulDatasetCollector() as collector:
        compiled(torch.mm, A, B)
    assert sum(collector.errors.values()) == 1
    assert {row.choice for row in collector.dataset()} == ATEN_AND_OWN


def test_it_takes_away_only_itself():
    selector = get_algorithm_selector_cache()
    before = list(selector.feedback_saver_fns), list(selector.preprocessing_fns), selector.autotune
    with autotuning(), other_listener() as (heard, seen):
        with MatmulDatasetCollector() as outer:
            with MatmulDatasetCollector() as inner:
                compiled(torch.mm, A, B)
            compiled(torch.mm, A[:16], B)
        compiled(torch.mm, A[:32], B)
    assert heard == ["mm"] * 3
    assert seen == [2] * 3
    assert (outer.events, inner.events) == (2, 1)
    assert before == (list(selector.feedback_saver_fns), list(selector.preprocessing_fns), selector.autotune)


def test_it_leaves_though_the_block_raises():
    collector = MatmulDatasetCollector()
    with autotuning():
        with pytest.raises(ZeroDivisionError), collector:
            raise ZeroDivisionError
        compiled(torch.mm, A, B)
    assert len(collector) == 0


def test_others_may_clear_all_listeners_meanwhile():
    selector = get_algorithm_selector_cache()
    with autotuning(), MatmulDatasetCollector() as collector:
        selector.clear_feedback_savers()
        compiled(torch.mm, A, B)
    assert len(collector) == 0


def test_it_can_be_entered_again_but_not_twice_at_once():
    with autotuning():
        with MatmulDatasetCollector() as collector:
            compiled(torch.mm, A, B)
            with pytest.raises(CollectionError, match="make another one to nest them"):
                collector.__enter__()
            compiled(torch.mm, A[:16], B)
        with collector:
            compiled(torch.mm, A[:32], B)
    assert [problem.M for problem in collector.dataset().problems] == [64, 16, 32]


def test_compiles_on_several_threads_are_all_recorded():
    sizes = [8, 24, 40, 56]
    at_once = threading.Barrier(len(sizes))

    def compile_one(rows):
        at_once.wait()
        # on torch 2.13 settings are of the thread that makes them
        with config.patch(max_autotune=True, external_matmul=[own_mm], autotune_num_choices_displayed=0):
            return torch.compile(lambda a, b: torch.mm(a, b), dynamic=False)(A[:rows], B)

    with autotuning(), MatmulDatasetCollector() as collector:
        torch.compiler.reset()
        with ThreadPoolExecutor(len(sizes)) as threads:
            results = list(threads.map(compile_one, sizes))
    for rows, result in zip(sizes, results, strict=True):
        torch.testing.assert_close(result, A[:rows] @ B)
    dataset = collector.dataset()
    assert sorted(problem.M for problem in dataset.problems) == sizes
    for problem in dataset.problems:
        assert {row.choice for row in dataset if row.problem == problem} == ATEN_AND_OWN
    assert (len(collector), collector.events, collector.errors) == (8, 4, {})


def test_given_hardware_stands_for_the_devices_of_its_type():
    described = Hardware("a CPU of my own", "cpu")
    with autotuning(), MatmulDatasetCollector(described) as collector:
        compiled(torch.mm, A, B)
    assert {row.environment.hardware for row in collector.dataset()} == {described}
    with autotuning(), MatmulDatasetCollector(Hardware("a GPU", "cuda")) as collector:
        compiled(torch.mm, A, B)
    assert {row.environment.hardware.device_type for row in collector.dataset()} == {"cpu"}
