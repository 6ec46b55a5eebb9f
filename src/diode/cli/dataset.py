"""The commands on data sets: stats, merge, convert, solution."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from diode.cli.console import out
from diode.cli.tables import print_fastest, print_statistics
from diode.errors import UsageError
from diode.storage import merge, read_datasets, solution_of, statistics, write_dataset, write_solution
from diode.storage.csv_dataset import read_csv, write_csv
from diode.storage.files import dataset_format
from diode.storage.solutions import solution_suffix
from diode.types import Dataset

app = typer.Typer(
    help="Look into data sets, merge and convert them, make solutions of them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Inputs = Annotated[list[Path], typer.Argument(help="Data sets, or folders of them.")]
Output = Annotated[Path, typer.Option(help="The file to write; its suffix tells the format.")]


@app.command(short_help="Say what is in data sets.")
def stats(
    inputs: Inputs,
    fastest: Annotated[int, typer.Option(min=0, help="Show the fastest choice of so many problems.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print the statistics as JSON.")] = False,
) -> None:
    """Say what is in data sets: problems, choices, failures, and the fastest choice of each problem."""
    dataset = _read(inputs)
    found = statistics(dataset)
    if json:
        out.print_json(msgspec.json.encode(found).decode())
        return
    print_statistics(out, found)
    if fastest:
        print_fastest(out, dataset, fastest)


@app.command("merge", short_help="Write several data sets as one.")
def merge_(context: typer.Context, inputs: Inputs, output: Output) -> None:
    """Write several data sets as one; of a measurement taken twice the better-timed one stays."""
    dataset_format(output, context.obj.format)
    datasets = [read_datasets(path) for path in inputs]
    merged = merge(datasets)
    write_dataset(merged, output, context.obj.format)
    given = sum(map(len, datasets))
    out.print(f"{output}: {len(merged)} measurements of {given} in {len(inputs)} data sets", markup=False)


@app.command()
def convert(
    context: typer.Context,
    input: Annotated[Path, typer.Argument(help="A data set, also one of the public torch-diode 0.1, or a .csv.")],
    output: Annotated[Path, typer.Argument(help="The file to write: .parquet, .msgpack, .json or .csv.")],
) -> None:
    """Write a data set in another format."""
    # Only here is CSV a format of data sets: it carries no checksum, and is large.
    to_csv = output.suffix == ".csv"
    if to_csv and context.obj.format is not None:
        raise UsageError(f"{output}: the suffix contradicts --format {context.obj.format}: give one of them")
    if not to_csv:
        dataset_format(output, context.obj.format)
    dataset = read_csv(input) if input.suffix == ".csv" else _read([input])
    if to_csv:
        write_csv(dataset, output)
    else:
        write_dataset(dataset, output, context.obj.format)
    out.print(f"{output}: {len(dataset)} measurements", markup=False)


@app.command()
def solution(
    context: typer.Context,
    inputs: Inputs,
    output: Annotated[Path, typer.Option(help="The file to write: .json or .csv.")],
    name: Annotated[str | None, typer.Option(help="Name of the solution; else that of the file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the fastest choice of each GEMM as a solution file."""
    suffix = solution_suffix(output)
    if context.obj.format not in (None, suffix.removeprefix(".")):
        raise UsageError(f"{output}: the suffix contradicts --format {context.obj.format}: give one of them")
    found = solution_of(_read(inputs), output.stem if name is None else name)
    write_solution(found, output)
    if json:
        written = {"output": str(output), "name": found.name, "entries": len(found.entries)}
        out.print_json(msgspec.json.encode(written).decode())
    else:
        out.print(f"{output}: {len(found.entries)} choices of solution {found.name}", markup=False)


def _read(inputs: list[Path]) -> Dataset:
    return Dataset.joined(read_datasets(path) for path in inputs)
