"""The commands that measure: collect, collect-shapeset, create-validation."""

from __future__ import annotations

import typer

from diode.cli.collection_options import (
    Budget,
    Choices,
    ChoicesFrom,
    Confirm,
    ConfirmOrNot,
    Device,
    Dtypes,
    Group,
    KernelFormName,
    Kernels,
    Layouts,
    LogNormal,
    MaxGflop,
    Mode,
    NumShapes,
    Ops,
    Output,
    Processes,
    SamplerOption,
    SearchMode,
    SearchSpaceName,
    ShareChoices,
    Space,
    sampler_of,
    settings_of,
)
from diode.cli.collection_run import Measuring, measure
from diode.cli.listed_problems import OnlyOps, Shapeset, Without, listed_problems


def collect(
    context: typer.Context,
    output: Output,
    num_shapes: NumShapes = 100,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    log_normal: LogNormal = False,
    sampler: SamplerOption = None,
    group: Group = 1,
    ops: Ops = "",
    dtypes: Dtypes = "",
    layouts: Layouts = "",
    max_gflop: MaxGflop = None,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: Confirm = False,
    processes: Processes = None,
) -> None:
    """Draw problems, and measure the choices that Inductor would try for each."""
    how = Measuring.of(context, device, budget, processes)
    drawn = sampler_of(context.obj.seed, log_normal, sampler, group, ops, dtypes, layouts, max_gflop).sample(num_shapes)
    settings = settings_of(
        context.obj.seed, search_space, choices, choices_from, kernels, shared=share_choices, confirm=confirm
    )
    measure(how.plan(drawn, settings, output))


def collect_shapeset(
    context: typer.Context,
    shapeset: Shapeset,
    output: Output,
    ops: OnlyOps = "",
    without: Without = None,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: Confirm = False,
    processes: Processes = None,
) -> None:
    """Measure the choices of the problems that a shapeset lists."""
    problems = listed_problems(shapeset, ops, without, output)
    how = Measuring.of(context, device, budget, processes)
    settings = settings_of(
        context.obj.seed, search_space, choices, choices_from, kernels, shared=share_choices, confirm=confirm
    )
    measure(how.plan(problems, settings, output))


def create_validation(
    context: typer.Context,
    output: Output,
    num_shapes: NumShapes = 30,
    search_space: Space = SearchSpaceName.EXHAUSTIVE,
    search_mode: Mode = SearchMode.max_autotune,
    log_normal: LogNormal = False,
    sampler: SamplerOption = None,
    group: Group = 1,
    ops: Ops = "",
    dtypes: Dtypes = "",
    layouts: Layouts = "",
    max_gflop: MaxGflop = None,
    choices: Choices = None,
    share_choices: ShareChoices = False,
    choices_from: ChoicesFrom = None,
    device: Device = None,
    budget: Budget = None,
    kernels: Kernels = KernelFormName.family,
    confirm: ConfirmOrNot = True,
    processes: Processes = None,
) -> None:
    """Measure a data set to validate with: as collect, but whole spaces, and near-winners timed a second time.

    Give another --seed than for training, or the problems will be the same.
    """
    collect(
        context,
        output,
        num_shapes,
        search_space,
        search_mode,
        log_normal,
        sampler,
        group,
        ops,
        dtypes,
        layouts,
        max_gflop,
        choices,
        share_choices,
        choices_from,
        device,
        budget,
        kernels,
        confirm,
        processes,
    )
