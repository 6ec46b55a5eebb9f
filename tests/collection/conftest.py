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
def pool():
    pool = WorkerPool(2)
    yield pool
    pool.close()
