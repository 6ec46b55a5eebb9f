"""Gathering measurements: samplers of problems, the sweep, and the collector over what torch.compile measures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diode.collection.collector import MatmulDatasetCollector
    from diode.collection.run import CollectionPlan, CollectionResult, run_collection

__all__ = ["CollectionPlan", "CollectionResult", "MatmulDatasetCollector", "run_collection"]

_HOMES = {
    "MatmulDatasetCollector": "diode.collection.collector",
    "CollectionPlan": "diode.collection.run",
    "CollectionResult": "diode.collection.run",
    "run_collection": "diode.collection.run",
}


def __getattr__(name: str) -> object:
    """Imports what is asked for only then: sampling problems needs neither torch nor processes."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
