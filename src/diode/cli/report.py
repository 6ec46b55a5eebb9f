"""The command that shows a model: report."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diode.cli.console import err, out
from diode.cli.validate import AnyHardware, BatchSize, Device, ModelFile, open_model
from diode.errors import UsageError
from diode.storage import filter_dataset, read_dataset, read_datasets
from diode.storage.atomic import write_atomically
from diode.storage.files import dataset_files
from diode.types import Dataset, DatasetBuilder

if TYPE_CHECKING:
    from diode.model.card import ModelCard
    from diode.report.curve import LearningCurve
    from diode.report.findings import JudgedFile

_SUFFIXES = (".html", ".htm")


def report(
    context: typer.Context,
    model: ModelFile,
    dataset: Annotated[
        list[Path], typer.Option("--dataset", help="A data set, or a folder of them, to judge it by. May be repeated.")
    ],
    output: Annotated[Path, typer.Option(help="The page to write: .html.")] = Path("report.html"),
    plots: Annotated[Path | None, typer.Option(help="Write the charts into this folder too, as PNG and SVG.")] = None,
    training: Annotated[
        Path | None,
        typer.Option(help="What the model was trained on: a table of fixed choices is made of it, to compare with."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Show so many of the worst problems and predictions.")] = 10,
    learning_curve: Annotated[
        bool, typer.Option("--learning-curve", help="Train quick models on shares of --training: takes minutes.")
    ] = False,
    learning_points: Annotated[
        Path | None, typer.Option(help="Draw the learning curve that an earlier run left in its --plots folder.")
    ] = None,
    gpu_minutes: Annotated[
        float | None,
        typer.Option(min=1e-6, help="What collecting --training took; else only its timed repeats are counted."),
    ] = None,
    batch_size: BatchSize = 64,
    device: Device = "cpu",
    any_hardware: AnyHardware = False,
) -> None:
    """Show how good a model is beside the baselines, and where it fails, as one page that needs nothing else."""
    from diode.report.style import require_matplotlib

    require_matplotlib()
    _check_outputs(output, plots)
    if learning_curve and training is None:
        raise UsageError("--learning-curve needs --training: the data to train quick models on")
    if learning_curve and learning_points is not None:
        raise UsageError("--learning-curve measures what --learning-points gives: name one of them")
    if gpu_minutes is not None and not learning_curve:
        raise UsageError("--gpu-minutes is for the axis of --learning-curve, which is not asked for")

    from diode.model.truth import Truth
    from diode.report.charts import draw_charts
    from diode.report.curve import encode_curve, read_curve
    from diode.report.findings import Inspection, gather
    from diode.report.page import render
    from diode.report.pictures import encoded

    curve = None if learning_points is None else read_curve(learning_points)
    wrapper = open_model(model, device)
    judged, files = _judged(wrapper.card, dataset, any_hardware=any_hardware)
    learned_from = None if training is None else _training_data(training, wrapper.card)
    found = gather(
        wrapper.model,
        wrapper.card,
        Truth.of(judged),
        Inspection(top, batch_size, context.obj.seed),
        files=files,
        training=None if learned_from is None else Truth.of(learned_from),
        curve=curve,
        say=_say,
    )
    if learning_curve and learned_from is not None:
        found = replace(found, curve=_measured_curve(learned_from, gpu_minutes, context.obj.seed))
    pictures = draw_charts(found)
    page = render(found, pictures)
    if plots is not None:
        drawn = encoded(pictures, plots)
        if found.curve is not None:
            drawn[plots / "learning_curve.json"] = encode_curve(found.curve)
        plots.mkdir(exist_ok=True)
        for path, content in drawn.items():
            write_atomically(path, content)
        out.print(f"{plots}: {len(pictures)} charts as PNG and SVG", markup=False)
    write_atomically(output, page)
    out.print(f"{output}: report on {found.card}, {len(page) / 1e6:.2f} MB; open it in a browser", markup=False)


def _check_outputs(output: Path, plots: Path | None) -> None:
    if output.suffix not in _SUFFIXES:
        raise UsageError(f"{output}: a report is a page; name it .html")
    if not output.resolve().parent.is_dir():
        raise UsageError(f"{output}: its folder does not exist; create it or name another --output")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise UsageError(f"{plots}: is a file; name a folder for --plots")
    if plots is not None and not plots.resolve().parent.is_dir():
        raise UsageError(f"{plots}: the folder around it does not exist; create it or name another --plots")


def _judged(card: ModelCard, datasets: list[Path], *, any_hardware: bool) -> tuple[Dataset, list[JudgedFile]]:
    """What was measured of the ops that the model knows, on the hardware that it knows."""
    from diode.model.truth import Truth
    from diode.report.findings import JudgedFile

    builder, files = DatasetBuilder(), []
    known = {hardware.name for hardware in card.hardware}
    for file in (file for path in datasets for file in dataset_files(path)):
        data = read_dataset(file)
        there = {environment.hardware.name for environment in data.environments}
        if not any_hardware and not there <= known:
            raise UsageError(
                f"{file}: was measured on {', '.join(sorted(there - known))}, but the model was trained on "
                f"{', '.join(sorted(known))}; --any-hardware compares all the same"
            )
        files.append(JudgedFile.of(file.name, hashlib.sha256(file.read_bytes()).hexdigest(), data))
        builder.extend(filter_dataset(data, op=card.ops))
    judged = builder.build()
    if not len(Truth.of(judged)):
        named = ", ".join(map(str, datasets))
        raise UsageError(f"{named}: no time of an op that the model knows ({', '.join(card.ops)})")
    return judged, files


def _training_data(training: Path, card: ModelCard) -> Dataset:
    from diode.model.truth import Truth

    data = filter_dataset(read_datasets(training), op=card.ops)
    if not len(Truth.of(data)):
        raise UsageError(f"{training}: no time of an op that the model knows ({', '.join(card.ops)})")
    return data


def _measured_curve(training: Dataset, gpu_minutes: float | None, seed: int) -> LearningCurve:
    from diode.report.learning import CurveSettings, learning_curve

    return learning_curve(
        training,
        CurveSettings(gpu_minutes=gpu_minutes, seed=seed),
        lambda point: _say(
            f"learning curve: {point.measurements} measurements, {point.efficiency_at_1:.2f}% with 1 choice, "
            f"{point.efficiency_at_3:.2f}% with 3"
        ),
    )


def _say(message: str) -> None:
    err.print(message, markup=False)
