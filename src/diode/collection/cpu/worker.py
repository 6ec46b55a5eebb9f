"""Compiles one problem after the other for this CPU and reports what Inductor measured on the way."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr
from multiprocessing.connection import Connection
from typing import Final

import torch

from diode.collection.collector import MatmulDatasetCollector
from diode.collection.cpu.product import OPS, Product
from diode.collection.gpu.messages import Broken, Done, Job, Outcome, Stop
from diode.collection.gpu.operands import Operands
from diode.integration.device import current_environment, current_hardware
from diode.integration.feedback import everything_measured
from diode.types import Environment, Failure, MMShape, Problem

_DTYPES: Final = ("float32", "bfloat16", "float16")


def serve(connection: Connection, scratch: str, command: str) -> None:
    worker = CpuWorker(scratch, command)
    connection.send(worker.environment)
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if isinstance(message, Stop):
            return
        with redirect_stderr(io.StringIO()):  # Inductor writes its tables there, whatever it is told
            reply = worker.run(message)
        connection.send(reply)


class CpuWorker:
    """Runs jobs in this process, on all cores; `scratch` is the folder for what is compiled."""

    def __init__(self, scratch: str, command: str = "") -> None:
        self.environment: Environment = current_environment(current_hardware("cpu"), command)
        self._scratch = scratch

    def run(self, job: Job) -> Done | Broken:
        started = time.perf_counter()
        refusal = _refusal(job.problem)
        if refusal is not None:
            return Broken(job.number, refusal)
        try:
            answer = self._measure(job)
        except (RuntimeError, MemoryError) as error:
            answer = f"cannot be compiled: {_first_line(error)}"
        finally:
            torch.compiler.reset()
        if isinstance(answer, str):
            return Broken(job.number, answer)
        # Inductor times while it compiles: the two cannot be told apart.
        return Done(job.number, answer, time.perf_counter() - started, timing_seconds=0.0, discarded=0)

    def _measure(self, job: Job) -> tuple[Outcome, ...] | str:
        """What Inductor measured, or why there is nothing."""
        operands = Operands(job.problem, torch.device("cpu"))
        product = Product(operands)
        with (
            everything_measured(self._scratch),
            torch.inference_mode(),
            MatmulDatasetCollector(self.environment.hardware) as collector,
        ):
            result = torch.compile(product, dynamic=False)(*product.inputs)
        nothing = _nothing_measured(collector, job.problem)
        if nothing is not None:
            return nothing
        if not _lies_as_asked(result, job.problem):
            return f"Inductor's result has strides {tuple(result.stride())}, not {job.problem.out.strides}"
        outcomes = tuple(Outcome(row.choice, row.timing, row.failure) for row in collector.dataset())
        wrong = _error_of(result, operands) if job.check else None
        return outcomes if wrong is None else _blame_winner(outcomes, wrong)


def _refusal(problem: MMShape) -> str | None:
    if problem.op not in OPS:
        return f"Inductor's choices for {problem.op} are not measured on a CPU: use {', '.join(OPS)}"
    dtypes = {operand.dtype for operand in (problem.a, problem.b, problem.out, problem.bias) if operand is not None}
    if len(dtypes) > 1 or problem.a.dtype not in _DTYPES:
        return (
            f"Inductor's choices for {', '.join(sorted(dtypes))} are not measured on a CPU: "
            f"use one of {', '.join(_DTYPES)} for all operands"
        )
    return None


def _nothing_measured(collector: MatmulDatasetCollector, problem: MMShape) -> str | None:
    lost = [*collector.errors, *collector.skipped]
    if lost:
        return f"what Inductor measured could not be recorded: {'; '.join(lost)}"
    if len(collector) == 0:
        return (
            f"Inductor has nothing to choose from on this CPU: one kernel for {problem.op} in layout {problem.layout}"
        )
    measured = collector.dataset().problems
    if len(measured) > 1 or not _same_sizes(measured[0], problem):
        return f"Inductor measured something else in its place: {'; '.join(map(str, measured))}"
    return None


def _same_sizes(measured: Problem, asked: MMShape) -> bool:
    """Inductor may have made another op of it, a packed linear say: the result has the asked-for sizes all the same."""
    if isinstance(measured, MMShape):
        return (measured.B, measured.M, measured.N, measured.K) == (asked.B, asked.M, asked.N, asked.K)
    return measured.out is not None and measured.out.sizes[-2:] == (asked.M, asked.N)


def _lies_as_asked(result: torch.Tensor, problem: MMShape) -> bool:
    # the stride of a dimension of one element says nothing
    return all(
        size == 1 or stride == asked
        for size, stride, asked in zip(result.shape, result.stride(), problem.out.strides, strict=True)
    )


def _error_of(result: torch.Tensor, operands: Operands) -> str | None:
    """What is wrong with a result, or None."""
    reference = torch.matmul(operands.a.double(), operands.b.double())
    if operands.bias is not None:
        reference += operands.bias
    difference = result.double() - reference
    norm = torch.linalg.vector_norm(reference)
    largest = torch.linalg.vector_norm(difference, float("inf")) * difference.numel() ** 0.5
    return operands.verdict(float(torch.linalg.vector_norm(difference) / norm), float(largest / norm))


def _blame_winner(outcomes: tuple[Outcome, ...], wrong: str) -> tuple[Outcome, ...]:
    """The compiled function ran the fastest choice; nothing is known of the others' results."""
    fastest = min((outcome.timing.time_us for outcome in outcomes if outcome.timing is not None), default=0.0)
    return tuple(
        Outcome(outcome.choice, None, Failure("wrong_result", wrong))
        if outcome.timing is not None and outcome.timing.time_us == fastest
        else outcome
        for outcome in outcomes
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]
