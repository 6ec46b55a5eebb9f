"""Listens to Inductor's autotuning: what it measured, told from what it only remembered.

Inductor calls a feedback saver at the end of each autotuning, also where every time came from its cache on disk, and
does not say which of the two it was. The difference is seen where it arises: `AlgorithmSelectorCache.lookup` hands out
either times from the cache or, unchanged, the mapping that `AlgorithmSelectorCache.autotune` returns after it has run
the kernels (torch 2.10 to 2.13). While anybody listens, that return value is wrapped in `FreshTimings`, so the mapping
itself carries the proof to the saver: out of nested compiles, in several threads, and past other people's savers that
benchmark again. Should a later torch copy the mapping, all reads as remembered: nothing old is ever taken for new.

Torch's caches stay as they are. Switching the autotuning cache off is no way to force new times: `lookup` then writes
the file on disk anew with nothing but its last result. `torch._inductor.utils.fresh_cache()` is the way.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import torch
from torch._inductor import config as inductor_config
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.ir import ChoiceCaller
from torch._inductor.runtime import benchmarking
from torch._inductor.select_algorithm import AlgorithmSelectorCache, get_algorithm_selector_cache
from torch._inductor.utils import fresh_cache, has_free_symbols

from diode.errors import UnsupportedError
from diode.integration.conversion import choice_from_caller, problem_from_nodes
from diode.types import AtenChoice, Choice, Failure, Problem, Timing, TimingMethod

Saver = Callable[..., None]
Preprocessing = Callable[[list[ChoiceCaller]], list[ChoiceCaller]]

SERVED_FROM_CACHE: Final = "served from torch's autotuning cache"

_OFFERED: Final = "diode.offered"
"""Annotation of a choice: all the choices that it was offered with, those that fail to compile among them."""

_NEEDED: Final = ("autotune", "lookup", "feedback_saver_fns", "preprocessing_fns")


class FreshTimings(dict[ChoiceCaller, float]):
    """Times in milliseconds that were measured just now, in this process."""


@dataclass(frozen=True)
class AutotuneEvent:
    """One autotuning that really ran kernels, and what became of each choice."""

    problem: Problem
    device: torch.device
    outcomes: tuple[tuple[Choice, TimingMethod, Timing | Failure], ...]


class _FreshnessMark:
    """Marks what real autotuning returns; the first listener attaches it, the last one removes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners = 0

    def attach(self, selector: AlgorithmSelectorCache) -> None:
        with self._lock:
            self._listeners += 1
            if self._listeners > 1:
                return
            original = selector.autotune

            def autotune_marking_results(*args: Any, **kwargs: Any) -> Any:
                timings = original(*args, **kwargs)
                return FreshTimings(timings) if isinstance(timings, dict) else timings

            self._marking = autotune_marking_results
            selector.autotune = autotune_marking_results  # type: ignore[method-assign]  # for this instance only

    def detach(self, selector: AlgorithmSelectorCache) -> None:
        with self._lock:
            self._listeners -= 1
            if self._listeners == 0 and vars(selector).get("autotune") is self._marking:
                del selector.autotune


_freshness = _FreshnessMark()


@contextmanager
def autotuning_observed(saver: Saver, preprocessing: Preprocessing) -> Iterator[None]:
    """Inside, `saver` hears of each autotuning in this process and `preprocessing` sees the choices before it.

    Neither may raise: Inductor passes their exceptions on to the user's compile.
    """
    selector = get_algorithm_selector_cache()
    missing = [name for name in _NEEDED if not hasattr(selector, name)]
    if missing:
        raise UnsupportedError(
            f"torch {torch.__version__} has no AlgorithmSelectorCache.{', '.join(missing)}: its autotuning cannot be "
            "observed; use torch 2.10 or later, or a newer diode"
        )
    _freshness.attach(selector)
    selector.add_preprocessing_fn(preprocessing)
    selector.add_feedback_saver(saver)
    try:
        yield
    finally:
        # New lists, for a compile in another thread may be iterating over the old ones.
        selector.feedback_saver_fns = [known for known in selector.feedback_saver_fns if known is not saver]
        selector.preprocessing_fns = [known for known in selector.preprocessing_fns if known is not preprocessing]
        _freshness.detach(selector)


@contextmanager
def everything_measured(folder: str | None = None) -> Iterator[None]:
    """Inside, compiles measure all choices that Inductor has, with nothing remembered; their files go to `folder`.

    On a CPU it has a choice only where the second operand is a weight, and weights are frozen.
    """
    # What vectors the compiler can make is asked by compiling, for seconds. It is no measurement: kept where torch
    # keeps its files, it is asked once on a machine and not in every folder anew.
    pick_vec_isa()
    settings = {"max_autotune": True, "freezing": True, "autotune_num_choices_displayed": 0}
    with fresh_cache(dir=folder), inductor_config.patch(settings):
        yield


def remember_offered(choices: Sequence[ChoiceCaller]) -> None:
    """Lets `read_event` find the choices that fail to compile, which Inductor drops before it calls its savers."""
    offered = tuple(choices)
    for choice in offered:
        choice.annotations[_OFFERED] = offered


def why_not_measured(timings: Mapping[ChoiceCaller, float], choices: Sequence[ChoiceCaller]) -> str | None:
    """Why an event holds no new times of the problem that it names; None for one that does."""
    if not isinstance(timings, FreshTimings):
        return SERVED_FROM_CACHE
    if any(_hint_override(choice) is not None for choice in choices):
        return "measured at an overridden size hint"
    if not choices or _timing_method(_device(choices[0])) is None:
        return "timed by a benchmarker that diode does not know"
    return None


def read_event(
    timings: Mapping[ChoiceCaller, float],
    name: str,
    input_nodes: Sequence[Any],
    choices: Sequence[ChoiceCaller],
) -> AutotuneEvent:
    """The event behind one call of a feedback saver, for which `why_not_measured` is None."""
    device = _device(choices[0])
    method = _timing_method(device)
    assert method is not None
    dynamic = any(has_free_symbols((*node.get_size(), *node.get_stride())) for node in input_nodes)
    outcomes: list[tuple[Choice, TimingMethod, Timing | Failure]] = []
    for caller, milliseconds in timings.items():
        outcome = _outcome(milliseconds, method)
        if outcome is not None:
            choice = choice_from_caller(caller)
            outcomes.append((choice, msgspec.structs.replace(method, kernel=_kernel_kind(choice, dynamic)), outcome))
    for caller in _failed_to_compile(choices, timings):
        choice = choice_from_caller(caller)
        outcomes.append((choice, msgspec.structs.replace(method, kernel=_kernel_kind(choice, dynamic)), _NOT_COMPILED))
    return AutotuneEvent(problem_from_nodes(name, input_nodes, choices[0].layout), device, tuple(outcomes))


_NOT_COMPILED: Final = Failure("compile_error", "Inductor could not precompile it")
_NO_TIME: Final = Failure("unknown", "Inductor's benchmark raised an error, which it logged and replaced by infinity")


def _outcome(milliseconds: float, method: TimingMethod) -> Timing | Failure | None:
    """None for a time of 0, which Inductor gives to what it does not run: an empty output."""
    if not math.isfinite(milliseconds):
        return _NO_TIME
    if milliseconds <= 0:
        return None
    microseconds = milliseconds * 1e3
    return Timing(microseconds, min_us=microseconds if method.statistic == "min" else None)


def _failed_to_compile(
    choices: Sequence[ChoiceCaller], timings: Mapping[ChoiceCaller, float]
) -> Iterator[ChoiceCaller]:
    offered: tuple[ChoiceCaller, ...] = choices[0].annotations.get(_OFFERED, ())
    for caller in offered:
        if caller.failed and caller not in timings and _hint_override(caller) is None:
            yield caller


def _kernel_kind(choice: Choice, dynamic: bool) -> Literal["static", "family", "backend"]:
    if isinstance(choice, AtenChoice):
        return "backend"
    return "family" if dynamic else "static"


def _timing_method(device: torch.device) -> TimingMethod | None:
    """How Inductor times on this device, or None for ways of which the statistic is not known."""
    if inductor_config.profile_bandwidth_with_do_bench_using_profiling:
        return None
    if device.type == "cpu":
        return TimingMethod(timer="inductor", statistic="median")
    benchmarker = benchmarking.benchmarker
    if type(benchmarker) is benchmarking.InductorBenchmarker:
        return TimingMethod("inductor", "min", flush_bytes=benchmarker.L2_cache_size, launch_hidden=False)
    if type(benchmarker) is benchmarking.TritonBenchmarker:
        return TimingMethod("inductor", "median", launch_hidden=False)
    return None


def _device(choice: ChoiceCaller) -> torch.device:
    return choice.input_nodes[0].get_device_or_error()


def _hint_override(choice: ChoiceCaller) -> int | None:
    return getattr(choice, "hint_override", None)
