"""Sweeps over what this machine's CPU really does."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
import torch
from torch._inductor import config

from diode.collection.cpu import CpuExecutor
from diode.collection.cpu.worker import CpuWorker
from diode.collection.executors import Lost
from diode.collection.gpu.messages import Done, Job
from diode.collection.gpu.timer import Repeats
from diode.collection.journal import Journal
from diode.collection.sweep import Sweep, SweepSettings
from diode.errors import CollectionError
from diode.types import AtenChoice, CppTemplateConfig, MMShape, TimingMethod

MM = MMShape.of("mm", 48, 64, 32, dtype="float32")
LINEAR = MMShape.of("addmm", 40, 56, 24, dtype="float32", layout="NT")
BMM = MMShape.of("bmm", 24, 32, 40, B=3, dtype="bfloat16")
ONE_KERNEL = MMShape.of("baddbmm", 24, 32, 40, B=3, dtype="float32")
UNSUPPORTED = MMShape.of("mm", 48, 64, 32, dtype="float64")
JOB = Job(7, BMM, (), Repeats())


OTHERS = set()
"""Processes of other tests, which are to live on."""


@pytest.fixture(scope="module")
def executor():
    OTHERS.update(multiprocessing.active_children())
    executor = CpuExecutor(command="what was called")
    yield executor
    executor.close()


def sweep(folder, problems, executor, *, stop_after=None, show=lambda progress: None):
    with Journal(folder / "run.journal", "plan") as journal:
        run = Sweep(problems, SweepSettings(confirm=True), executor, None, journal, folder / "kernels")
        complete = run.run(lambda: run.progress.problems_done == stop_after, show)
        return complete, run.progress, journal.dataset()


def child_of(executor):
    (child,) = set(multiprocessing.active_children()) - OTHERS
    return child


def kill_child(executor):
    child = child_of(executor)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    return child.pid


def test_a_sweep_ends_in_a_dataset_and_goes_on_where_it_was_stopped(tmp_path, executor):
    asked = [MM, ONE_KERNEL, LINEAR, UNSUPPORTED, BMM]
    complete, progress, dataset = sweep(tmp_path, asked, executor, stop_after=1)
    assert not complete
    assert dataset.problems == (MM,)

    complete, progress, dataset = sweep(tmp_path, asked, executor)
    assert complete
    assert (progress.problems, progress.problems_done, progress.restarts) == (5, 5, 0)
    assert progress.measurements == 4  # what was measured of MM was there already
    assert dataset.problems == (MM, LINEAR, BMM)
    for problem in dataset.problems:
        rows = [row for row in dataset if row.problem == problem]
        assert {type(row.choice) for row in rows} == {AtenChoice, CppTemplateConfig}
        assert all(row.time_us is not None for row in rows)
    assert dataset.methods == (TimingMethod("inductor", "median"),)
    (environment,) = dataset.environments
    assert environment.hardware.device_type == "cpu"
    assert environment.command == "what was called"
    one_kernel, unsupported = progress.broken
    assert one_kernel.startswith(f"{ONE_KERNEL}: Inductor has nothing to choose from on this CPU")
    assert "float64" in unsupported
    assert "use one of float32, bfloat16, float16" in unsupported

    complete, progress, dataset = sweep(tmp_path, [MM, LINEAR, BMM], executor)
    assert (complete, progress.problems_done, progress.measurements, len(dataset)) == (True, 3, 0, 6)


def test_a_killed_process_is_reported_and_the_sweep_goes_on(tmp_path, executor):
    killed = []

    def kill_once(progress):
        if executor.pending and not killed:
            killed.append(kill_child(executor))

    complete, progress, dataset = sweep(tmp_path, [BMM], executor, show=kill_once)
    assert complete
    assert (progress.restarts, progress.broken) == (1, [])
    assert dataset.problems == (BMM,)
    assert child_of(executor).pid not in killed


def test_a_problem_that_costs_every_process_is_given_up(tmp_path, executor):
    def kill(progress):
        if executor.pending:
            kill_child(executor)

    complete, progress, dataset = sweep(tmp_path, [BMM], executor, show=kill)
    assert complete
    assert progress.restarts == 2
    assert progress.broken == [f"{BMM}: the CPU process died with exit code -9"]
    assert len(dataset) == 0


def test_a_hung_process_is_lost_and_started_again(executor, monkeypatch):
    monkeypatch.setattr(executor, "_patience_seconds", 0.25)
    hung = child_of(executor)
    os.kill(hung.pid, signal.SIGSTOP)
    executor.submit(JOB)
    assert (executor.idle, executor.pending) == (0, 1)
    replies = []
    while not replies:
        replies = executor.replies(0.1)
    assert replies == [Lost(JOB, -1, "the CPU process gave no result in 0.25 s")]
    assert (executor.idle, executor.pending) == (1, 0)
    assert not hung.is_alive()
    assert child_of(executor).pid != hung.pid


def test_an_executor_of_compiled_kernels_needs_a_pool(tmp_path, executor, monkeypatch):
    monkeypatch.setattr(executor, "chooses_itself", False)
    with pytest.raises(CollectionError, match="give the sweep one"):
        sweep(tmp_path, [MM], executor)


def test_a_closed_executor_leaves_no_process_and_no_files(executor):
    folder = executor._scratch.name
    executor.submit(JOB)
    executor.close()
    assert set(multiprocessing.active_children()) <= OTHERS
    assert not os.path.exists(folder)  # noqa: PTH110  # a name, not a path


def test_a_wrong_result_is_a_failure_of_the_choice_that_won(tmp_path):
    def spoil(graph):
        """A pass that somebody has Inductor run, and that gets it wrong."""
        (output,) = graph.find_nodes(op="output")
        (result,) = output.all_input_nodes
        with graph.inserting_before(output):
            wrong = graph.call_function(torch.ops.aten.add.Tensor, (result, 1.0))
            wrong.meta.update(result.meta)
        output.replace_input_with(result, wrong)

    worker = CpuWorker(str(tmp_path))
    with config.patch(post_grad_custom_post_pass=spoil):
        done = worker.run(JOB)
    assert isinstance(done, Done)
    (wrong,) = [outcome for outcome in done.outcomes if outcome.failure is not None]
    assert (wrong.timing, wrong.failure.reason) == (None, "wrong_result")
    assert "relative error" in wrong.failure.message
    assert len(done.outcomes) == 2
    assert all(outcome.timing is not None for outcome in done.outcomes if outcome is not wrong)
