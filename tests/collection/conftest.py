"""What the tests of the sweep share, since it takes long to make."""

from __future__ import annotations

import pytest

from diode.collection.kernels.pool import WorkerPool
from diode.collection.planning import Planner


@pytest.fixture(scope="session")
def planner():
    """Keeps the patterns that it has learned."""
    return Planner()


@pytest.fixture(scope="session")
def shared_pool():
    pool = WorkerPool(2)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared_pool):
    """Left whole by a test that kills its processes: the next may be of another file."""
    yield shared_pool
    while not all(worker.process.is_alive() for worker in shared_pool._workers):
        shared_pool.results(0.1)
