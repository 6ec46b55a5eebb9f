"""One cold compile: what it cost, and a callable of it that outlives the next one.

Cold means an empty cache folder, nothing remembered by Inductor or Dynamo, but a process that has compiled before: its
pool of compile workers is up, and a model once loaded stays. That is how the second graph of a user's program finds it.

- `search_seconds` is the wall time from entering Inductor's lowering of a graph until its module is loaded with every
  kernel compiled, summed over the graphs. For a graph of one GEMM that is the search as docs/evaluation.md defines it:
  the hook, the candidates' code, compiling and benchmarking them, the scheduler (which benchmarks late), and the
  winner's own kernel, which is written and compiled again by that name; for k = 1, the only compile there is. What
  every graph needs is in it too, some hundredths of a second: it counts against the cheaper mode. For a whole model,
  so are the pointwise kernels.
- `compile_seconds` is the wall time of the first call: Dynamo, tracing and graph passes (where Inductor decides about
  padding), the above, and the first run. Less the `compile_seconds` of the same graph without max-autotune, it is the
  other measure of a search; it may come out below zero where there is nothing to search.
- `kernels_compiled` counts the binaries of Triton kernels in the cache folder.
- `kernels_benchmarked` is Inductor's own count of what its benchmarker timed on the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.utils import fresh_cache

from diode.integration.conversion import choice_from_caller
from diode.integration.decision import last_decision
from diode.integration.matmul_integration import MatmulIntegration
from diode.integration.policy import TopK

TOP_K: Mapping[str, TopK] = {"k1": 1, "k3": 3, "auto": "auto"}
SEARCHING: Mapping[str, object] = {"max_autotune_gemm": True}
"""For GEMMs alone: what else `mode="max-autotune"` tunes is the same for all modes here and would only add noise."""
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "aten": {},
    "default": SEARCHING,
    **dict.fromkeys(TOP_K, SEARCHING),
    "exhaustive": {**SEARCHING, "max_autotune_gemm_search_space": "EXHAUSTIVE"},
}
"""By mode, in the order in which modes are told. `aten` is a compile without max-autotune."""


@dataclass(frozen=True)
class Cost:
    search_seconds: float
    compile_seconds: float
    kernels_compiled: int
    kernels_benchmarked: int
    graphs: int
    ended_with: tuple[str, ...] = ()
    """The choice of each GEMM: what the model left where it left one, else what was fastest in Inductor's benchmark."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    decision_ms: float | None = None

    def told(self) -> dict[str, Any]:
        facts = asdict(self)
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in facts.items()}


class KeptBackend:
    """The Inductor backend, which also keeps what it compiled: `torch._dynamo.reset()` makes Dynamo forget it."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._inductor = torch._TorchCompileInductorWrapper(None, dict(options), False)
        self.compiled: list[Callable[..., Any]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = self._inductor(graph, inputs)
        self.compiled.append(compiled)
        return compiled


class Stopwatch:
    """Times the outermost calls of what lowers a graph and of what compiles and loads its module."""

    def __init__(self, on_entering: Callable[[], None] | None = None) -> None:
        self.seconds = 0.0
        self.graphs = 0
        self._depth = 0
        self._on_entering = on_entering

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in ("run", "compile_to_module"):
                stack.enter_context(mock.patch.object(GraphLowering, name, self._timed(getattr(GraphLowering, name))))
            yield

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._depth:  # a choice that is a graph of its own
                return method(*args, **kwargs)
            if method.__name__ == "run":
                self.graphs += 1
                if self._on_entering is not None:
                    self._on_entering()
            self._depth += 1
            started = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started
                self._depth -= 1

        return timed


class Choosers:
    """Diode as a user registers it, by mode; loaded models and prepared tables stay from one compile to the next."""

    def __init__(self, model: Path) -> None:
        self._integrations = {mode: MatmulIntegration(model, top_k_configs=k) for mode, k in TOP_K.items()}

    @contextmanager
    def engaged(self, mode: str) -> Iterator[MatmulIntegration | None]:
        """Inside, compiles are as the mode says; modes without a model are torch's own."""
        integration = self._integrations.get(mode)
        if integration is None:
            yield None
            return
        status = integration.integrate()
        if not status:
            raise RuntimeError(f"diode cannot be registered: {status}")
        try:
            yield integration
        finally:
            integration.undo()


def compile_cold(
    function: Callable[..., Any],
    first_call: Callable[[Callable[..., Any]], object],
    options: Mapping[str, object],
    folder: Path,
    integration: MatmulIntegration | None = None,
    on_entering: Callable[[], None] | None = None,
) -> tuple[KeptBackend, Callable[..., Any], Cost]:
    """Compiles `function` with an empty cache under `folder`, by having `first_call` call the compiled one."""
    before = _stats(integration)
    torch._dynamo.reset()
    counters.clear()
    kept, watch, winners = KeptBackend(options), Stopwatch(on_entering), list[str]()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(fresh_cache(dir=str(folder), delete=False))
        stack.enter_context(inductor_config.patch(quiet()))
        stack.enter_context(_listening(winners))
        stack.enter_context(watch.running())
        started = time.perf_counter()
        compiled = torch.compile(function, backend=kept, dynamic=False)
        first_call(compiled)
        synchronize()
        seconds = time.perf_counter() - started
    decided = {name: value - before.get(name, 0) for name, value in _stats(integration).items()}
    decisions = int(decided.get("decisions", 0))
    decision = last_decision() if decisions == 1 else None
    if decision is not None and len(decision.picks) == 1:
        winners = [str(decision.picks[0].choice)]
    cost = Cost(
        search_seconds=watch.seconds,
        compile_seconds=seconds,
        kernels_compiled=kernels_in(folder),
        kernels_benchmarked=benchmarked(),
        graphs=watch.graphs,
        ended_with=tuple(winners),
        fallbacks={name: int(n) for name, n in decided.items() if name.startswith("fallback_") and n},
        decision_ms=decided["decision_seconds_total"] / decisions * 1e3 if decisions else None,
    )
    return kept, compiled, cost


def quiet() -> dict[str, object]:
    """Options of Inductor that keep it from printing a table of each search."""
    wanted = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
    return {name: value for name, value in wanted.items() if hasattr(inductor_config, name)}


def benchmarked() -> int:
    """What Inductor's benchmarker timed since `counters` were cleared."""
    return sum(count for name, count in counters["inductor"].items() if _is_a_benchmark(name))


def _is_a_benchmark(name: str) -> bool:
    return name.startswith("benchmarking.") and name.endswith((".benchmark_gpu", ".benchmark_cpu"))


def kernels_in(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.cubin"))


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def wait_for_compile_workers() -> None:
    """Until the pool is up, Inductor compiles in threads of this process."""
    AsyncCompile.wait_pool_ready()


def _stats(integration: MatmulIntegration | None) -> dict[str, int | float]:
    choices = None if integration is None else integration.choices
    return {} if choices is None else choices.get_stats()


@contextmanager
def _listening(winners: list[str]) -> Iterator[None]:
    """Notes the fastest choice of every autotuning."""
    savers = get_algorithm_selector_cache().feedback_saver_fns

    def note(timings: Mapping[Any, float], *_: object) -> None:
        if timings:
            winners.append(str(choice_from_caller(min(timings, key=timings.__getitem__))))

    savers.append(note)
    try:
        yield
    finally:
        savers.remove(note)
