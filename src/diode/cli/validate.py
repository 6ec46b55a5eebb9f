"""The commands that judge models: validate-model, validate-max-autotune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from diode.cli.console import out
from diode.cli.devices import check_model_device
from diode.errors import FileAccessError, UsageError
from diode.storage import filter_dataset, read_datasets, read_solution
from diode.storage.atomic import write_atomically

if TYPE_CHECKING:
    from diode.model.truth import Truth
    from diode.model.wrapper import ModelWrapper

ModelFile: TypeAlias = Annotated[Path, typer.Option("--model", help="A trained model.")]
Data: TypeAlias = Annotated[Path, typer.Option("--dataset", help="A data set, or a folder of them, to judge it by.")]
BatchSize: TypeAlias = Annotated[int, typer.Option(min=1, help="Problems whose choices are predicted together.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device: TypeAlias = Annotated[str, typer.Option(help="Where the model runs: cpu or cuda.")]
AnyHardware: TypeAlias = Annotated[
    bool, typer.Option("--any-hardware", help="Judge by measurements of other hardware than the model was trained on.")
]


def validate_model(
    model: ModelFile,
    dataset: Data,
    batch_size: BatchSize = 64,
    top_n_worst: Annotated[int, typer.Option(min=0, help="Show so many of the worst predictions.")] = 10,
    device: Device = "cpu",
    any_hardware: AnyHardware = False,
    json: Json = False,
) -> None:
    """Say how well a model predicts times and ranks choices, and where it is most wrong."""
    from diode.cli.evaluation_tables import print_validation
    from diode.model.validation import validate

    wrapper = open_model(model, device)
    truth = _truth(wrapper, dataset, any_hardware=any_hardware)
    found = validate(wrapper.model, truth, batch_size, top_n_worst)
    if json:
        out.print_json(msgspec.json.encode(found).decode())
    else:
        print_validation(out, found)


def validate_max_autotune(
    context: typer.Context,
    model: ModelFile,
    dataset: Data,
    max_autotune_solution: Annotated[
        Path | None, typer.Option(help="Also compare with the choices of this solution file.")
    ] = None,
    batch_size: BatchSize = 64,
    output: Annotated[Path, typer.Option(help="Where the figures by op go, as JSON.")] = Path(
        "model_performance_analysis_by_op.json"
    ),
    device: Device = "cpu",
    any_hardware: AnyHardware = False,
    json: Json = False,
) -> None:
    """Compare a model's first choices with the fastest of all that were measured, and with a solution file."""
    from diode.cli.evaluation_tables import print_comparison
    from diode.model.comparison import compare

    if not output.resolve().parent.is_dir():
        raise UsageError(f"{output}: its folder does not exist; create it or name another --output")
    solution = None if max_autotune_solution is None else read_solution(max_autotune_solution)
    wrapper = open_model(model, device)
    truth = _truth(wrapper, dataset, any_hardware=any_hardware)
    found = compare(wrapper.model, truth, solution, batch_size=batch_size, seed=context.obj.seed)
    if json:
        out.print_json(msgspec.json.encode(found).decode())
    else:
        print_comparison(out, found)
    write_atomically(output, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if not json:
        out.print(f"figures by op: {output}", markup=False)


def open_model(model: Path, device: str) -> ModelWrapper:
    from diode.model.wrapper import ModelWrapper

    check_model_device(device, "--device")
    if not model.exists():  # its card, which is read first, need not be spoken of
        raise FileAccessError(f"{model}: cannot be read: there is no such model; train makes one")
    return ModelWrapper(model, device)


def _truth(wrapper: ModelWrapper, dataset: Path, *, any_hardware: bool) -> Truth:
    """What was measured of the ops that the model knows, on the hardware that it knows."""
    from diode.model.truth import Truth

    data = read_datasets(dataset)
    if not len(data):
        raise UsageError(f"{dataset}: holds no measurement")
    card = wrapper.card
    known = {device.name for device in card.hardware}
    there = {environment.hardware.name for environment in data.environments}
    if not any_hardware and not there <= known:
        raise UsageError(
            f"{dataset}: was measured on {', '.join(sorted(there - known))}, but the model was trained on "
            f"{', '.join(sorted(known))}; --any-hardware compares all the same"
        )
    truth = Truth.of(filter_dataset(data, op=card.ops))
    if not len(truth):
        raise UsageError(f"{dataset}: holds no time of an op that the model knows ({', '.join(card.ops)})")
    return truth
