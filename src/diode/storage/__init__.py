"""Files to types and back: datasets as JSON, msgpack and Parquet, shapesets; merging, filtering, counting."""

from diode.storage.files import DATASET_SUFFIXES, DatasetFormat, read_dataset, read_datasets, write_dataset
from diode.storage.filtering import filter_dataset
from diode.storage.merging import merge
from diode.storage.shapesets import read_shapeset, write_shapeset
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
    "statistics",
    "write_dataset",
    "write_shapeset",
]
