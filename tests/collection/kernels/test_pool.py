"""Real processes that plan and compile, and what becomes of their tasks when they end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace

import pytest

from diode.collection.kernels import pool as pool_module
from diode.collection.kernels.compiler import CompileTarget, kernel_key
from diode.collection.kernels.pattern import KernelSource
from diode.collection.kernels.pool import Compiled, CompileTask, Planned, PlanTask, TaskFailed, WorkerPool
from diode.collection.kernels.store import kernel_path, read_kernel
from diode.collection.planning import PlanRequest
from diode.types import MMShape
from diode.types.known_hardware import H200

TARGET = CompileTarget.of(H200)
STORE = "@triton.jit\ndef stores(out_ptr0):\n    tl.store(out_ptr0, {})\n"
SOURCE = KernelSource(STORE.format("1.0"), (("out_ptr0", "*fp32"),), (0,), num_warps=1, num_stages=1)
BROKEN = replace(SOURCE, text=STORE.format("nothing_of_that_name"))
REQUEST = PlanRequest(MMShape.of("mm", 16, 24, 40), H200, "DEFAULT")


@pytest.fixture
def single():
    """A pool of one process, which works through its tasks in their order."""
    pool = WorkerPool(1)
    yield pool
    pool.close()


def compile_task(folder, *sources):
    return CompileTask(tuple((kernel_key(source, TARGET), source) for source in sources), TARGET, str(folder))


def all_results(pool):
    results = []
    while pool.busy:
        results += pool.results(5.0)
    return results


def the_process(pool):
    (worker,) = pool._workers
    return worker.process


def test_what_is_planned_in_a_process_is_what_is_planned_here(pool, planner):
    others = [replace(REQUEST, problem=MMShape.of("bmm", 16, 24, 40, B=3)), replace(REQUEST, form="static")]
    for number, request in enumerate([REQUEST, *others]):
        pool.submit(PlanTask(number, request))
    results = sorted(all_results(pool), key=lambda result: result.number)
    assert results == [Planned(number, planner.plan(request)) for number, request in enumerate([REQUEST, *others])]


def test_kernels_are_compiled_into_the_store_and_failures_say_why(pool, tmp_path):
    twice = replace(SOURCE, text=STORE.format("2.0"))
    task = compile_task(tmp_path, SOURCE, BROKEN, twice)
    pool.submit(task)
    (result,) = all_results(pool)
    assert isinstance(result, Compiled)
    failures = dict(result.failures)
    first, broken, second = (key for key, _ in task.kernels)
    assert (failures[first], failures[second]) == (None, None)
    assert failures[broken].reason == "compile_error"
    assert "nothing_of_that_name" in failures[broken].message
    assert read_kernel(kernel_path(tmp_path, first)).key == first
    assert kernel_path(tmp_path, second).exists()
    assert not kernel_path(tmp_path, broken).exists()


def test_what_lies_in_the_store_is_not_compiled_again(pool, tmp_path):
    task = compile_task(tmp_path, BROKEN)
    ((key, _),) = task.kernels
    path = kernel_path(tmp_path, key)
    path.parent.mkdir()
    path.write_bytes(b"what somebody compiled before")
    pool.submit(task)
    assert all_results(pool) == [Compiled(((key, None),))]
    assert path.read_bytes() == b"what somebody compiled before"


def test_a_task_that_raises_is_reported_with_the_reason(pool, tmp_path):
    too_large = PlanTask(3, replace(REQUEST, problem=MMShape.of("mm", 2**16, 2**16, 64)))
    (tmp_path / "file").touch()
    no_folder = compile_task(tmp_path / "file", SOURCE)
    pool.submit(too_large)
    pool.submit(no_folder)
    reasons = {result.task: result.reason for result in all_results(pool)}
    assert "needs 64-bit addresses" in reasons[too_large]
    assert "NotADirectoryError" in reasons[no_folder]


def test_a_killed_process_costs_its_task_and_no_other(single, tmp_path):
    doomed, next_one = compile_task(tmp_path, BROKEN), compile_task(tmp_path, SOURCE)
    process = the_process(single)
    os.kill(process.pid, signal.SIGSTOP)  # so that it is surely at work when it is killed
    single.submit(doomed)
    single.submit(next_one)
    os.kill(process.pid, signal.SIGKILL)
    first, second = all_results(single)
    assert first == TaskFailed(doomed, "the compiler process died (exit code -9)")
    assert second == Compiled(((next_one.kernels[0][0], None),))
    assert the_process(single).pid != process.pid


def test_a_process_killed_between_tasks_costs_nothing_but_itself(single, tmp_path):
    process = the_process(single)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert single.results(5.0) == []
    task = compile_task(tmp_path, SOURCE)
    single.submit(task)
    assert all_results(single) == [Compiled(((task.kernels[0][0], None),))]


def test_a_process_that_hangs_is_replaced(single, tmp_path, monkeypatch):
    monkeypatch.setattr(pool_module, "_TASK_SECONDS", 0.2)
    process = the_process(single)
    os.kill(process.pid, signal.SIGSTOP)
    task = compile_task(tmp_path, SOURCE)
    single.submit(task)
    results = []
    while not results:
        results = single.results(0.1)
    assert results == [TaskFailed(task, "took longer than 0 s")]
    assert not process.is_alive()
    assert the_process(single).is_alive()


def test_urgent_tasks_come_first_and_waiting_ones_can_be_dropped(single, tmp_path):
    running, waiting, urgent = (
        compile_task(tmp_path, replace(SOURCE, text=STORE.format(f"{number}.0"))) for number in range(3)
    )
    single.submit(running)
    single.submit(waiting)
    single.submit(urgent, urgent=True)
    assert (single.backlog, single.busy) == (2, True)
    done = [result.failures[0][0] for result in all_results(single)]
    assert done == [task.kernels[0][0] for task in (running, urgent, waiting)]

    single.submit(running)
    single.submit(waiting)
    single.discard_waiting()
    assert (single.backlog, single.busy) == (0, True)
    assert all_results(single) == [Compiled(((running.kernels[0][0], None),))]


def test_a_closed_pool_leaves_no_process(tmp_path):
    before = set(multiprocessing.active_children())
    pool = WorkerPool(2)
    pool.submit(compile_task(tmp_path, SOURCE))
    pool.close()
    assert set(multiprocessing.active_children()) <= before
