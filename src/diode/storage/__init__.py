"""Files to types and back: datasets, shapesets and solutions in their formats; merging, filtering, counting."""

from diode.storage.files import DATASET_SUFFIXES, DatasetFormat, read_dataset, read_datasets, write_dataset
from diode.storage.filtering import filter_dataset
from diode.storage.merging import merge
from diode.storage.shapesets import read_shapeset, write_shapeset
from diode.storage.solutions import read_solution, solution_of, write_solution
from diode.storage.statistics import Counts, Group, Statistics, fastest, statistics

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
