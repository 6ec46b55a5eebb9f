"""Tables of what is in a data set."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from diode.cli.console import microseconds
from diode.storage import Counts, Statistics, fastest
from diode.types import Dataset


def print_statistics(console: Console, found: Statistics) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("hardware", "op"):
        table.add_column(name)
    for name in ("problems", "choices", "timed", "failed", "fastest", "slowest"):
        table.add_column(name, justify="right")
    for group in found.groups:
        table.add_row(group.hardware, group.op, *_cells(group.counts))
    if len(found.groups) != 1:
        table.add_section()
        table.add_row("all", "", *_cells(found.totals))
    console.print(table)
    for title, tally in (
        ("types", found.by_dtype),
        ("layouts", found.by_layout),
        ("kinds", found.by_kind),
        ("timers", found.by_timer),
        ("failures", found.totals.failures_by_reason),
    ):
        if tally:
            listed = ", ".join(f"{name} {count}" for name, count in tally.items())
            console.print(f"{title}: {listed}", markup=False)


def print_fastest(console: Console, dataset: Dataset, count: int) -> None:
    """The fastest choice of each problem, `count` problems at most."""
    best = fastest(dataset)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("problem")
    table.add_column("fastest choice")
    table.add_column("time", justify="right")
    for row, measurement in enumerate(best):
        if row == count:
            break
        time_us = measurement.time_us
        table.add_row(
            str(measurement.problem), str(measurement.choice), "" if time_us is None else microseconds(time_us)
        )
    console.print(table)
    if len(best) > count:
        console.print(f"and {len(best) - count} more; --fastest {len(best)} shows all", markup=False)


def _cells(counts: Counts) -> list[str]:
    times = [counts.min_time_us, counts.max_time_us]
    return [
        *(str(number) for number in (counts.problems, counts.choices, counts.successes, counts.failures)),
        *("" if time is None else microseconds(time) for time in times),
    ]
