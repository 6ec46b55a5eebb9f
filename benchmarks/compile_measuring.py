"""Problems and models in every mode: a cold compile each, then the times of what they ended with, taken in turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cold_compile import OPTIONS, Choosers, Cost, KeptBackend, compile_cold, wait_for_compile_workers
from compile_summary import regime_of_rows
from diode.collection.gpu.operands import Operands
from diode.collection.gpu.timer import InterleavedTimer, Repeats, sample_all
from diode.integration.device import current_hardware
from diode.types import MMShape
from small_models import SmallModel, training_step

MODES = ("default", "k1", "aten", "k3", "auto")
"""In the order of their importance."""
REPEATS = Repeats(at_least=9, at_most=41, hopeless=1e9, seconds=1.5)
OPS: dict[str, Callable[..., torch.Tensor]] = {
    "mm": torch.mm,
    "addmm": torch.addmm,
    "bmm": torch.bmm,
    "baddbmm": torch.baddbmm,
}
Launch = Callable[[], object]


@dataclass
class Budget:
    seconds: float
    started: float = field(default_factory=time.monotonic)
    longest: dict[str, float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def allows(self, kind: str, reserved: float = 0.0) -> bool:
        """Whether one more of the kind would leave `reserved` seconds if it took as long as the longest so far."""
        return self.left - reserved > self.longest.get(kind, 0.0)

    def took(self, kind: str, seconds: float) -> None:
        self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))


class Bench:
    """What all measurements of one process share."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.device = torch.device("cuda", 0)
        torch.cuda.set_stream(torch.cuda.Stream(self.device))  # the default stream cannot be captured into a graph
        self.hardware = current_hardware(str(self.device))
        self.timer = InterleavedTimer(self.device, self.hardware.l2_bytes or 0)
        self.choosers = Choosers(model)
        self._folder = folder
        self._compiles = itertools.count()

    def warm_up(self) -> None:
        """The first compile of a process imports and starts up; a chooser's first decision loads its model."""
        wait_for_compile_workers()
        a = torch.randn(256, 256, device=self.device, dtype=torch.bfloat16)
        for mode in MODES:
            self.compile(mode, torch.mm, lambda compiled: compiled(a, a))

    def compile(
        self,
        mode: str,
        function: Callable[..., Any],
        first_call: Callable[[Callable[..., Any]], object],
        folder: Path | None = None,
        on_entering: Callable[[], None] | None = None,
    ) -> tuple[KeptBackend, Callable[..., Any], Cost]:
        with self.choosers.engaged(mode) as integration:
            unused = folder or self._folder / str(next(self._compiles))
            return compile_cold(function, first_call, OPTIONS[mode], unused, integration, on_entering)

    def times_us(self, launches: dict[str, Launch]) -> tuple[dict[str, float | None], str]:
        """Medians of calls; if some cannot be enqueued in time, of replays of graphs. Says which."""
        found = self.sampled_us(launches)
        if None not in found.values():
            return found, "calls"
        graphs: dict[str, Launch] = {name: captured(launch) for name, launch in launches.items()}
        return self.sampled_us(graphs), "replays of CUDA graphs"

    def sampled_us(self, launches: dict[str, Launch]) -> dict[str, float | None]:
        """None where no sample was free of launch latency."""
        started = time.perf_counter()
        sampled = sample_all(self.timer, list(launches.values()), REPEATS, lambda: time.perf_counter() - started)
        return {name: None if s is None else round(s.median, 3) for name, s in zip(launches, sampled, strict=True)}


class ProblemBench:
    """One problem: its operands, and what each mode compiled for it."""

    def __init__(self, bench: Bench, problem: MMShape) -> None:
        self.bench = bench
        self.problem = problem
        self.rows: dict[str, dict[str, Any]] = {}
        self._operands = Operands(problem, bench.device)
        self._compiled: dict[str, Callable[..., Any]] = {}
        bias = self._operands.bias
        if bias is not None:
            while bias.ndim > 1 and bias.stride(0) == 0:
                bias = bias[0]
        self._arguments = [tensor for tensor in (bias, self._operands.a, self._operands.b) if tensor is not None]

    def compile(self, mode: str, folder: Path | None = None, on_entering: Callable[[], None] | None = None) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.problem.allow_tf32
        operation = OPS[self.problem.op]
        kept, _, cost = self.bench.compile(
            mode, operation, lambda compiled: compiled(*self._arguments), folder, on_entering
        )
        (compiled,) = kept.compiled
        wrong = self._wrong(compiled)
        self._compiled[mode] = compiled
        self.rows[mode] = cost.told() | {"wrong": wrong}

    def take_times(self) -> str:
        launches: dict[str, Launch] = {mode: self._launch(mode) for mode in self._compiled}
        times, taken_by = self.bench.times_us(launches)
        for mode, time_us in times.items():
            self.rows[mode]["kernel_us"] = time_us
        return taken_by

    def _launch(self, mode: str) -> Launch:
        return partial(self._compiled[mode], *self._arguments)

    def _wrong(self, compiled: Callable[..., Any]) -> str | None:
        (result,) = compiled(*self._arguments)
        self._operands.out.copy_(result)
        relative, largest = self._operands.errors().tolist()
        return self._operands.verdict(relative, largest)


def measure_problem(bench: Bench, problem: MMShape, turn: int) -> dict[str, Any]:
    errors: dict[str, str] = {}
    with torch.no_grad():
        measured = ProblemBench(bench, problem)
        for mode in MODES[turn % len(MODES) :] + MODES[: turn % len(MODES)]:
            with noting(errors, mode):
                measured.compile(mode)
        taken_by = None
        with noting(errors, "times"):
            taken_by = measured.take_times()
    rows = {mode: measured.rows[mode] for mode in OPTIONS if mode in measured.rows}
    return {
        "name": str(problem),
        "regime": regime_of_rows(problem, rows),
        "times_of": taken_by,
        "errors": errors,
        "rows": rows,
    }


@contextmanager
def noting(errors: dict[str, str], mode: str) -> Iterator[None]:
    """A mode that fails is a finding, and is not to cost the figures of the others."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever a compile raises
        errors[mode] = f"{type(error).__name__}: {error}"[:2000]


def measure_model(bench: Bench, model: SmallModel, budget: Budget, reserved: float = 0.0) -> dict[str, Any]:
    module, inputs = model.make(bench.device)
    rows: dict[str, dict[str, Any]] = {}
    launches: dict[str, Launch] = {}
    kept_alive: list[object] = []
    left_out: list[str] = []
    errors: dict[str, str] = {}
    with noting(errors, "eager"):
        launches["eager"] = captured(lambda: training_step(module, module, inputs))
    for mode in MODES:
        if not budget.allows(f"{mode} of a model", reserved):
            left_out.append(mode)
            continue
        started = time.monotonic()
        with noting(errors, mode):
            kept, compiled, cost = bench.compile(mode, module, lambda forward: training_step(forward, module, inputs))
            kept_alive += [kept, compiled]
            rows[mode] = cost.told()
            launches[mode] = captured(lambda forward=compiled: training_step(forward, module, inputs))  # type: ignore[misc]
        budget.took(f"{mode} of a model", time.monotonic() - started)
    times: dict[str, float | None] = {}
    with noting(errors, "times"):
        times = bench.sampled_us(launches)
    for mode, row in rows.items():
        row["step_us"] = times.get(mode)
    return {
        "name": model.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "input": model.input_sizes,
        "eager_step_us": times.get("eager"),
        "left_out": left_out,
        "errors": errors,
        "rows": {mode: rows[mode] for mode in OPTIONS if mode in rows},
    }


def captured(launch: Launch) -> Launch:
    """The launches of a call as one CUDA graph, on the stream that all else runs on."""
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        kept_alive = launch()
    return lambda graph=graph, _=kept_alive: graph.replay()  # type: ignore[misc]
