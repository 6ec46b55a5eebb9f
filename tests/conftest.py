"""Settings that hold for all tests."""

from __future__ import annotations

import os

import pytest

# Read when torch._inductor is imported. A pool of compile workers is forked from a process that has threads already:
# slow for the few kernels compiled here, and now and then it never comes down again.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def _fake_tensors_of_the_main_thread() -> None:
    """Where a CUDA build of torch 2.10 or 2.11 finds no GPU, the first thread to make fake tensors installs a stand-in
    for its device guard that dies with that thread, and the next one crashes (pytorch/pytorch#178950)."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        pass
