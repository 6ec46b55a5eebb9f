"""The tables of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diode.model.evaluation import REGIMES, AtK, Evaluation
from diode.model.validation import Errors, Validation, WorstPrediction
from diode.report.findings import JudgedFile, WorstProblem
from diode.report.importance import Importance
from diode.report.markup import Column, Group, rows, table
from diode.report.words import count, microseconds, percent

_TEXT = Column("", "text")
_COMPARED_AT = (1, 3, 8)


def efficiency_table(rankings: Mapping[str, Evaluation]) -> str:
    first = next(iter(rankings))
    counts = [str(entry.k) for entry in rankings[first].overall]
    lines = [[name, *(f"{entry.efficiency:.2f}" for entry in found.overall)] for name, found in rankings.items()]
    caption = "Percent of the oracle with the best of the first k choices"
    return table(caption, [Column("k =", "text"), *map(Column, counts)], rows(*lines), first)


def baselines_by_regime(rankings: Mapping[str, Evaluation]) -> str:
    first = next(iter(rankings))
    regimes = [name for name in REGIMES if name in rankings[first].by_regime]
    groups = []
    for k in _COMPARED_AT:
        lines = []
        for name, found in rankings.items():
            by_regime = [_at(found.by_regime.get(regime, ()), k) for regime in regimes]
            lines.append([name, *(_efficiency(entry) for entry in [*by_regime, _at(found.overall, k)])])
        groups.append(Group(f"with {k} choice{'s' if k > 1 else ''}", lines))
    return table("Percent of the oracle by regime", [_TEXT, *map(Column, [*regimes, "all"])], groups, first)


def model_by_regime(ranking: Evaluation) -> str:
    titles = ("problems", "% @1", "% @3", "% @8", "p95 @1", "p95 @3", "worst @3", "kept @3")
    groups = [
        Group("regime", [_regime_line(name, entries) for name, entries in ranking.by_regime.items()]),
        Group("op", [_regime_line(name, entries) for name, entries in ranking.by_op.items()]),
        Group("", [_regime_line("all", ranking.overall)]),
    ]
    caption = "The model: percent of the oracle, regret, winner kept"
    return table(caption, [_TEXT, *map(Column, titles)], groups, "all")


def worst_problems(worst: Sequence[WorstProblem]) -> str:
    columns = [
        Column("problem", "code"),
        Column("regime", "text"),
        Column("chosen first", "code"),
        Column("its time"),
        Column("oracle", "code"),
        Column("its time"),
        Column("library"),
        Column("regret @1"),
        Column("@3"),
    ]
    lines = [
        [
            entry.problem,
            entry.regime,
            entry.chosen,
            "fails" if entry.chosen_us is None else microseconds(entry.chosen_us),
            entry.oracle,
            microseconds(entry.oracle_us),
            "not timed" if entry.library_us is None else microseconds(entry.library_us),
            percent(entry.regret_at_1),
            percent(entry.regret_at_3),
        ]
        for entry in worst
    ]
    return table("Problems with the largest regret of the first choice", columns, rows(*lines))


def worst_predictions(worst: Sequence[WorstPrediction]) -> str:
    columns = [
        Column("problem", "code"),
        Column("choice", "code"),
        Column("predicted"),
        Column("measured"),
        Column("ratio"),
    ]
    lines = [
        [
            entry.problem,
            entry.choice,
            microseconds(entry.predicted_us),
            microseconds(entry.actual_us),
            f"{entry.ratio:.3g}x",
        ]
        for entry in worst
    ]
    return table("Predictions that are furthest from what was measured", columns, rows(*lines))


def errors_table(found: Validation) -> str:
    titles = ("measurements", "RMSE (log)", "RMSE factor", "median factor", "in 1 sigma", "in 2 sigma")
    lines = [_errors("all choices", found.errors), _errors("near the fastest", found.errors_near)]
    return table("Errors of the predicted times", [_TEXT, *map(Column, titles)], rows(*lines))


def importance_table(importance: Sequence[Importance]) -> str:
    columns = [Column("feature", "code"), Column("regret @1, points"), Column("RMSE (log)")]
    lines = [[entry.column, f"{100 * entry.regret:+.2f}", f"{entry.log_error:+.4f}"] for entry in importance]
    return table("What shuffling each feature adds", columns, rows(*lines))


def files_table(files: Sequence[JudgedFile]) -> str:
    columns = [
        Column("file", "code"),
        *map(Column, ("problems", "times", "failures")),
        Column("measured on", "prose"),
        Column("SHA-256", "code"),
    ]
    lines = [
        [
            file.name,
            count(file.problems),
            count(file.measurements),
            count(file.failures),
            "; ".join(file.circumstances),
            file.sha256[:12],
        ]
        for file in files
    ]
    return table("What the model was judged by", columns, rows(*lines))


def _regime_line(name: str, entries: Sequence[AtK]) -> list[str]:
    at = {entry.k: entry for entry in entries}
    return [
        name,
        count(at[1].problems),
        *(f"{at[k].efficiency:.2f}" for k in _COMPARED_AT),
        percent(at[1].regret_p95),
        percent(at[3].regret_p95),
        percent(at[3].regret_worst),
        f"{at[3].winner_kept:.0%}",
    ]


def _errors(name: str, found: Errors) -> list[str]:
    return [
        name,
        count(found.measurements),
        f"{found.rmse:.3f}",
        f"{found.rmse_factor:.3f}x",
        f"{found.median_factor:.3f}x",
        f"{found.within_one_sigma:.0%}",
        f"{found.within_two_sigma:.0%}",
    ]


def _at(entries: Sequence[AtK], k: int) -> AtK | None:
    return next((entry for entry in entries if entry.k == k), None)


def _efficiency(entry: AtK | None) -> str:
    return "" if entry is None else f"{entry.efficiency:.2f}"
