"""Tables of how good a model is."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from diode.cli.console import microseconds
from diode.model.comparison import AgainstSolution, Comparison
from diode.model.evaluation import Evaluation
from diode.model.validation import Errors, Validation


def print_validation(console: Console, found: Validation) -> None:
    console.print(_errors_table({"all choices": found.errors, "near the fastest": found.errors_near}))
    failures = found.failures
    console.print(
        f"failures: {failures.failures}, {failures.foreseen:.1%} of them foreseen, "
        f"{failures.false_alarms:.2%} of the working choices taken for one",
        markup=False,
    )
    console.print(efficiency_table({"model": found.ranking}))
    print_by_regime(console, found.ranking)
    if found.worst:
        worst = _table("worst predictions", "choice", right=("predicted", "actual", "ratio"))
        for row in found.worst:
            times = (microseconds(row.predicted_us), microseconds(row.actual_us))
            worst.add_row(row.problem, row.choice, *times, f"{row.ratio:.3g}x")
        console.print(worst)


def print_comparison(console: Console, found: Comparison) -> None:
    console.print(efficiency_table(found.rankings))
    print_by_regime(console, found.rankings["model"])
    if found.noise_floor_p50 is not None and found.noise_floor_p95 is not None:
        console.print(
            f"noise floor: the first round's fastest choice is {found.noise_floor_p50:.2%} (p50) and "
            f"{found.noise_floor_p95:.2%} (p95) behind the fastest of the second",
            markup=False,
        )
    if found.solution is not None:
        _print_against(console, found.solution)


def efficiency_table(rankings: dict[str, Evaluation]) -> Table:
    """Efficiency in percent of the oracle, by number of choices that are benchmarked."""
    counts = [entry.k for entry in next(iter(rankings.values())).overall]
    table = _table("% of oracle with", right=[str(k) for k in counts])
    for name, ranking in rankings.items():
        table.add_row(name, *(f"{entry.efficiency:.2f}" for entry in ranking.overall))
    return table


def print_by_regime(console: Console, ranking: Evaluation) -> None:
    table = _table("", right=("problems", "% @1", "@3", "@8", "regret@1 p95", "@3 p95", "@3 worst", "kept@3"))
    for name, entries in {**ranking.by_regime, **ranking.by_op, "all": ranking.overall}.items():
        at = {entry.k: entry for entry in entries}
        table.add_row(
            name,
            str(at[1].problems),
            *(f"{at[k].efficiency:.2f}" for k in (1, 3, 8)),
            f"{at[1].regret_p95:.1%}",
            f"{at[3].regret_p95:.1%}",
            f"{at[3].regret_worst:.1%}",
            f"{at[3].winner_kept:.0%}",
        )
    console.print(table)


def _print_against(console: Console, found: AgainstSolution) -> None:
    table = _table(f"against {found.name}", right=("problems", "choices", "efficiency"))
    table.add_row("solution", str(found.problems), f"{found.solution_choices:.3g}", f"{found.solution_efficiency:.2f}%")
    for k, efficiency in found.model_efficiency.items():
        table.add_row("model", str(found.problems), k, f"{efficiency:.2f}%")
    console.print(table)
    if found.not_covered:
        console.print(f"{found.not_covered} problems that the solution says nothing about are left out", markup=False)


def _errors_table(rows: dict[str, Errors]) -> Table:
    titles = ("measurements", "MSE (log)", "RMSE (log)", "RMSE factor", "median factor", "in 1 sigma", "in 2 sigma")
    table = _table("predicted times", right=titles)
    for name, errors in rows.items():
        table.add_row(
            name,
            str(errors.measurements),
            f"{errors.mse:.4f}",
            f"{errors.rmse:.4f}",
            f"{errors.rmse_factor:.3f}x",
            f"{errors.median_factor:.3f}x",
            f"{errors.within_one_sigma:.0%}",
            f"{errors.within_two_sigma:.0%}",
        )
    return table


def _table(*left: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table
