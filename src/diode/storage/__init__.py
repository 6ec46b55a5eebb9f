"""Files to types and back: datasets, shapesets and solutions in their formats; merging, filtering, counting."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from diode.storage.counting import Counts, Group, Statistics, fastest, statistics
    from diode.storage.files import DATASET_SUFFIXES, DatasetFormat, read_dataset, read_datasets, write_dataset
    from diode.storage.filtering import filter_dataset
    from diode.storage.merging import merge
    from diode.storage.shapesets import read_shapeset, write_shapeset
    from diode.storage.solutions import read_solution, solution_of, write_solution

__all__ = [
    "DATASET_SUFFIXES",
    "Counts",
    "DatasetFormat",
    "Group",
    "Statistics",
    "fastest",
    "filter_dataset",
    "merge",
    "read_dataset",
    "read_datasets",
    "read_shapeset",
    "read_solution",
    "solution_of",
    "statistics",
    "write_dataset",
    "write_shapeset",
    "write_solution",
]

# What reads a model's card, inside a user's compile, needs none of the formats of data sets.
_HOME: Final = {
    "DATASET_SUFFIXES": "files",
    "Counts": "counting",
    "DatasetFormat": "files",
    "Group": "counting",
    "Statistics": "counting",
    "fastest": "counting",
    "filter_dataset": "filtering",
    "merge": "merging",
    "read_dataset": "files",
    "read_datasets": "files",
    "read_shapeset": "shapesets",
    "read_solution": "solutions",
    "solution_of": "solutions",
    "statistics": "counting",
    "write_dataset": "files",
    "write_shapeset": "shapesets",
    "write_solution": "solutions",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
