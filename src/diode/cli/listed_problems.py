"""Which problems of a shapeset a command takes: those of some ops, and those that nobody has measured yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from diode.collection.samplers import OPS
from diode.errors import UsageError
from diode.storage import read_dataset, read_shapeset
from diode.storage.files import dataset_files
from diode.types import MMShape

Shapeset: TypeAlias = Annotated[Path, typer.Option(help="A JSON file that lists problems.")]
OnlyOps: TypeAlias = Annotated[str, typer.Option("--ops", help="Only problems of these ops, as in mm,bmm; empty: all.")]
Without: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(help="Leave out what this data set, or a folder of them, has measured; may be repeated."),
]


def listed_problems(
    shapeset: Path, ops: str = "", without: Sequence[Path] | None = None, output: Path | None = None
) -> tuple[MMShape, ...]:
    """Each problem once, in the order of the shapeset.

    What lies in `output` is no reason to leave a problem out: there is the beginning of this very collection.
    """
    wanted = {name.strip() for name in ops.split(",") if name.strip()}
    unknown = sorted(wanted - set(OPS))
    if unknown:
        raise UsageError(f"--ops: {unknown[0]!r} is not one of {', '.join(OPS)}")
    listed = tuple(dict.fromkeys(read_shapeset(shapeset)))
    if not listed:
        raise UsageError(f"{shapeset}: lists no problem")
    of_ops = tuple(problem for problem in listed if not wanted or problem.op in wanted)
    if not of_ops:
        raise UsageError(f"--ops {ops}: {shapeset} lists no problem of these ops")
    measured = {
        problem
        for path in without or ()
        for file in dataset_files(path)
        if output is None or file.resolve() != output.resolve()
        for problem in read_dataset(file).problems
    }
    left = tuple(problem for problem in of_ops if problem not in measured)
    if not left:
        raise UsageError(f"{shapeset}: all {len(of_ops)} problems that are asked for are measured in --without")
    return left
