"""The command `diode` with what is said before the command's name."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, NamedTuple

import typer

import diode
from diode.cli import collect, collect_and_train, dataset, learn, report, train, validate
from diode.storage.files import DatasetFormat


class Format(str, Enum):
    json = "json"
    msgpack = "msgpack"
    parquet = "parquet"


class Common(NamedTuple):
    """What holds for every command; a command finds it in its context."""

    format: DatasetFormat | None
    seed: int


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diode {diode.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="diode",
    help="Measures GEMM kernels, and chooses among them by a model of their performance.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def common(
    context: typer.Context,
    format: Annotated[
        Format | None, typer.Option(help="Format of the files that are written; else their suffix tells.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides all that is drawn; equal seeds draw the same everywhere.")] = 42,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    context.obj = Common(None if format is None else format.value, seed)


app.command("collect")(collect.collect)
app.command("collect-shapeset")(collect.collect_shapeset)
app.command("create-validation")(collect.create_validation)
app.command("train")(train.train)
app.command("learn")(learn.learn)
app.command("collect-and-train")(collect_and_train.collect_and_train)
app.command("validate-model")(validate.validate_model)
app.command("validate-max-autotune")(validate.validate_max_autotune)
app.command("report")(report.report)
app.add_typer(dataset.app, name="dataset")
