"""The command `diode` with what is said before the command's name."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, NamedTuple

import typer

import diode
from diode.cli import (
    collect,
    collect_and_train,
    compile_ahead,
    dataset,
    describe_models,
    learn,
    report,
    train,
    validate,
)
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
    rich_markup_mode=None,  # boxes cut long names off
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


for name, command, short_help in (
    ("collect", collect.collect, "Draw problems and measure their choices."),
    ("collect-shapeset", collect.collect_shapeset, "Measure the problems that a file lists."),
    ("create-validation", collect.create_validation, "Measure a data set to judge models by."),
    ("compile-ahead", compile_ahead.compile_ahead, "Compile a collection's kernels on any machine."),
    ("train", train.train, "Make a model of measurements."),
    ("learn", learn.learn, "Fold what compiles have benchmarked into a model."),
    ("collect-and-train", collect_and_train.collect_and_train, "All of it: measure, train, and judge."),
    ("validate-model", validate.validate_model, "How far off a model is, and where."),
    ("validate-max-autotune", validate.validate_max_autotune, "Compare a model with an exhaustive search."),
    ("report", report.report, "Show on one page what a model is worth."),
    ("describe-models", describe_models.describe_models, "Write the manifest and model card of a package."),
):
    app.command(name, short_help=short_help)(command)
app.add_typer(dataset.app, name="dataset", short_help="Look into data sets, merge and convert them.")
