"""The door to files of measurements: the format is told by the suffix."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, get_args

from diode.errors import FileAccessError, UsageError
from diode.storage.atomic import replacing, write_atomically
from diode.storage.document import dataset_from_document, dataset_to_document, is_of_another_kind
from diode.storage.flaws import naming_file
from diode.types.dataset import Dataset

DatasetFormat = Literal["json", "msgpack", "parquet"]
DATASET_FORMATS: Final[tuple[DatasetFormat, ...]] = get_args(DatasetFormat)
DATASET_SUFFIXES: Final = tuple(f".{name}" for name in DATASET_FORMATS)

StrPath = str | os.PathLike[str]


def read_dataset(path: StrPath, format: DatasetFormat | None = None) -> Dataset:
    """The measurements of one file, in its order; JSON and msgpack files of the public torch-diode 0.1 are read too."""
    path = Path(path)
    file_format = dataset_format(path, format)
    with naming_file(path):
        if file_format == "parquet":
            # Arrow takes a tenth of a second to import: only who reads Parquet pays for it.
            from diode.storage.parquet import read_parquet

            return read_parquet(path)
        return dataset_from_document(path.read_bytes(), file_format)


def read_datasets(path: StrPath, extensions: Collection[str] | None = None) -> Dataset:
    """The measurements of a file, or of all files of a folder one after another, sorted by name.

    `extensions` says which files of the folder are read (`json` or `.json`); by default all that can hold a dataset.
    Hidden files and folders in it are left alone.
    """
    return Dataset.joined(read_dataset(file) for file in dataset_files(path, extensions))


def dataset_files(path: StrPath, extensions: Collection[str] | None = None) -> list[Path]:
    """The file itself, or the files of a folder that `read_datasets` reads.

    JSON of a folder that says that it is something else is left alone: models and solutions lie beside their data.
    """
    path = Path(path)
    suffixes = DATASET_SUFFIXES if extensions is None else tuple(f".{name.removeprefix('.')}" for name in extensions)
    for suffix in suffixes:
        if suffix not in DATASET_SUFFIXES:
            raise UsageError(f"extension {suffix!r} is none of {', '.join(DATASET_SUFFIXES)}")
    try:
        if not path.is_dir():
            return [path]
        entries = sorted(path.iterdir())
        named = [file for file in entries if file.suffix in suffixes and file.name[0] != "." and file.is_file()]
        files = [file for file in named if file.suffix != ".json" or not is_of_another_kind(file.read_bytes())]
    except OSError as cause:
        raise FileAccessError(f"{path}: cannot be read: {cause.strerror or cause}") from cause
    if not named:
        raise FileAccessError(f"{path}: holds no {', '.join(suffixes)} file")
    if not files:
        raise FileAccessError(f"{path}: holds no data set: {', '.join(file.name for file in named)} are something else")
    return files


def write_dataset(dataset: Dataset, path: StrPath, format: DatasetFormat | None = None) -> None:
    """Writes all measurements in their order; the file appears whole or not at all.

    The format is told by the suffix. A `format` must agree with it, or may tell it where there is no suffix.
    """
    path = Path(path)
    file_format = dataset_format(path, format)
    if file_format == "parquet":
        from diode.storage.parquet import write_parquet

        with replacing(path) as file:
            write_parquet(dataset, file)
    else:
        write_atomically(path, dataset_to_document(dataset, file_format))


def dataset_format(path: Path, format: str | None = None) -> DatasetFormat:
    known = ", ".join(DATASET_SUFFIXES)
    by_suffix = path.suffix.removeprefix(".")
    wanted = by_suffix if format is None else format
    if format is not None and by_suffix and by_suffix != format:
        raise UsageError(f"{path}: the suffix contradicts the format {format}: give one of them, or both alike")
    for file_format in DATASET_FORMATS:
        if wanted == file_format:
            return file_format
    if not wanted:
        raise UsageError(f"{path}: has no suffix that tells the format; name it {known}")
    raise UsageError(f"{path}: {wanted!r} is no format of datasets; known are {known}")
