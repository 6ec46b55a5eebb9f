"""The process that owns a GPU, on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from diode.collection.executors import Executor, Lost, ProcessPerGpu
from diode.collection.gpu.messages import Done, Entry, Job, KernelLaunch
from diode.collection.gpu.timer import Repeats
from diode.collection.kernels.compiler import CompileTarget, compile_kernel
from diode.collection.kernels.pattern import KernelSource
from diode.collection.kernels.store import kernel_path, write_kernel
from diode.collection.planning import Planner, PlanRequest
from diode.types import AtenChoice, MMShape, OtherChoice, PersistentTMAConfig, TritonGEMMConfig

pytestmark = pytest.mark.gpu

HEADER = "@triton.jit\ndef broken(arg_A, arg_B, out_ptr0):\n"
SIGNATURE = (("arg_A", "*bf16"), ("arg_B", "*bf16"), ("out_ptr0", "*bf16"))
OUT_OF_BOUNDS = HEADER + "    tl.store(out_ptr0 + 137438953472, 1.0)\n"
WRONG = HEADER + "    tl.store(out_ptr0 + tl.arange(0, 64), tl.load(arg_A + tl.arange(0, 64)))\n"


@pytest.fixture(scope="module")
def executor():
    made = ProcessPerGpu()
    yield made
    made.close()


def replies_to(executor: Executor, job: Job) -> list[Done | Lost]:
    executor.submit(job)
    replies: list[Done | Lost] = []
    while executor.pending:
        replies += executor.replies(1.0)  # type: ignore[arg-type]
    return replies


def planned_entries(executor: Executor, problem: MMShape, store: Path, form: str, every: int) -> list[Entry]:
    hardware = executor.environment.hardware
    entries = []
    choices = Planner().plan(PlanRequest(problem, hardware, "DEFAULT", form=form)).choices
    for planned in choices[::every]:
        launch = None
        if planned.kernel is not None:
            path = kernel_path(store, planned.kernel.key)
            write_kernel(path, compile_kernel(planned.kernel.source, CompileTarget.of(hardware)))
            launch = KernelLaunch(str(path), planned.kernel.source.signature, planned.kernel.grid, planned.kernel.sizes)
        entries.append(Entry(planned.choice, launch))
    return entries


def handmade(executor: Executor, text: str, name: str, store: Path) -> Entry:
    source = KernelSource(text, SIGNATURE, (0, 1, 2), num_warps=4, num_stages=1)
    path = store / f"{name}.kernel"
    write_kernel(path, compile_kernel(source, CompileTarget.of(executor.environment.hardware)))
    return Entry(OtherChoice("test", name), KernelLaunch(str(path), SIGNATURE, (1, 1, 1), ()))


@pytest.mark.parametrize("form", ["static", "family"])
@pytest.mark.parametrize(
    "problem",
    [
        MMShape.of("mm", 1000, 520, 264, layout="NT"),
        MMShape.of("mm", 512, 1024, 512, layout="TN", dtype="float16"),
        MMShape.of("addmm", 333, 512, 1000, layout="NT", dtype="float16"),
        MMShape.of("addmm", 256, 264, 104, layout="NN", bias="matrix"),
        MMShape.of("bmm", 200, 96, 72, B=5, layout="NT"),
        MMShape.of("bmm", 64, 128, 256, B=1, layout="NN"),
        MMShape.of("mm", 264, 200, 520, dtype="float32", allow_tf32=True),
        MMShape.of("mm", 1, 4096, 1024, layout="NT"),
    ],
    ids=str,
)
def test_what_inductor_would_run_computes_the_right_result(executor, problem, form, tmp_path):
    entries = planned_entries(executor, problem, tmp_path, form, every=4)
    entries.append(Entry(AtenChoice(problem.op), None))
    (done,) = replies_to(executor, Job(1, problem, tuple(entries), Repeats()))
    assert isinstance(done, Done)
    failed = {outcome.choice: outcome.failure.reason for outcome in done.outcomes if outcome.failure is not None}
    wrong = [choice for choice, reason in failed.items() if reason != "shared_memory"]
    # Persistent TMA takes a row of A for a column where M is 1 (torch 2.11): found, and kept from winning.
    assert [choice for choice in wrong if problem.M > 1 or not isinstance(choice, PersistentTMAConfig)] == []
    timed = [outcome.choice for outcome in done.outcomes if outcome.timing is not None]
    assert any(isinstance(choice, TritonGEMMConfig | PersistentTMAConfig) for choice in timed)
    assert any(isinstance(choice, AtenChoice) for choice in timed)


def test_a_kernel_that_kills_the_context_costs_its_process_and_nothing_else(executor, tmp_path):
    problem = MMShape.of("mm", 64, 64, 64)
    good = planned_entries(executor, problem, tmp_path, "static", every=8)
    job = Job(7, problem, (good[0], handmade(executor, OUT_OF_BOUNDS, "deadly", tmp_path), *good[1:]), Repeats())
    (lost,) = replies_to(executor, job)
    assert isinstance(lost, Lost)
    assert (lost.job.number, lost.entry) == (7, 1)
    (done,) = replies_to(executor, Job(8, problem, tuple(good), Repeats()))
    assert [outcome.failure for outcome in done.outcomes] == [None] * len(good)


def test_a_fast_wrong_kernel_is_a_failure(executor, tmp_path):
    problem = MMShape.of("mm", 64, 64, 64)
    wrong = handmade(executor, WRONG, "wrong", tmp_path)
    for number in (1, 2):  # also when it was looked at before
        (done,) = replies_to(executor, Job(number, problem, (Entry(AtenChoice("mm"), None), wrong), Repeats()))
        aten, other = done.outcomes
        assert aten.timing is not None
        assert other.failure.reason == "wrong_result"
