"""The page: one HTML file that asks for nothing else, not from a network and not from a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from diode.model.card import ModelCard
from diode.report import tables
from diode.report.findings import STATIC_TABLE, Findings
from diode.report.markup import beside, chart, facts, folded, note, paragraph, section, tiles
from diode.report.pictures import Picture
from diode.report.style import DARK, LIGHT
from diode.report.words import count, counted, percent

_SURFACES: Final = ({"paper": "#ffffff", "raised": "#f5f7f9"}, {"paper": "#12161b", "raised": "#1b2128"})
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_WORDS: Final = (
    ("Problem", "One GEMM: op, sizes, element types, layouts, bias, TF32 permission."),
    ("Choice", "One thing that Inductor could run for it: a template with one config, or a kernel of the library."),
    ("Oracle", "The fastest choice of a problem among all that were measured."),
    ("Regret @k", "Time of the best of the first k choices over the time of the oracle, minus 1."),
    ("Efficiency @k", "100 over the geometric mean of that ratio, in percent of the oracle."),
    ("Winner kept @k", "How often the oracle, or a choice within 1% of it, is among the first k."),
    (
        "Regime",
        "The first that fits: tiny (oracle below 20 µs), skinny (M or N up to 64), deep-K (K at least 8 times M and "
        "N), large (over 2e11 operations), ordinary.",
    ),
)
_RANKERS: Final = {
    "model": "as in a compile: a small network first leaves it the plausible choices",
    "model in full": "looks closely at every choice",
    "library": "the library's kernels and no others, as without autotuning",
    "random": "in an order by lot",
    STATIC_TABLE: "one fixed list, the best on average over the training data",
}


def render(found: Findings, pictures: Sequence[Picture]) -> bytes:
    charts = {picture.name: chart(picture) for picture in pictures}
    title = f"{found.card} · diode report"
    body = "".join(
        (
            _header(found),
            *map(note, _warnings(found)),
            tiles(_tiles(found)),
            _beside_baselines(found, charts),
            _by_regime(found, charts),
            section("worst-problems", "Worst problems", tables.worst_problems(found.worst)) if found.worst else "",
            _predicted_times(found, charts),
            _features(found, charts),
            _learning(found, charts),
            _model(found),
            section("words", "Words", facts(_WORDS)),
        )
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{_stylesheet()}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
    return page.encode()


def _stylesheet() -> str:
    light, dark = (
        _variables({**surface, **colours}) for surface, colours in zip(_SURFACES, (LIGHT, DARK), strict=True)
    )
    rules = files("diode.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f":root {{ --font: {_FONT}; {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"@media print {{ :root {{ {light} }} }}\n{rules}"
    )


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _header(found: Findings) -> str:
    card = found.card
    hardware = ", ".join(device.name for device in card.hardware)
    line = (
        f"A {card.type} model for {', '.join(card.ops)} on {hardware}, judged by "
        f"{counted(found.problems, 'problem')} with {count(found.median_choices)} measured choices each (median)"
    )
    return f"<header><h1>{escape(str(card))}</h1>{paragraph(line)}</header>\n"


def _warnings(found: Findings) -> Iterator[str]:
    seen = found.seen_in_training
    if seen:
        yield (
            f"The model was trained on {', '.join(seen)}: it is judged by what it has seen, and the figures flatter it."
        )
    if found.twins_in_training:
        yield (
            f"{count(found.twins_in_training)} of {counted(found.problems, 'problem')} have a problem of the same "
            f"sizes in the training data: the figures flatter what was made from those, the {STATIC_TABLE} among them."
        )


def _tiles(found: Findings) -> Iterator[tuple[str, str, str]]:
    ranking = next(iter(found.rankings.values()))
    for k in (1, 3, 8):
        entry = ranking.at(k)
        yield (
            f"{entry.efficiency:.2f}%",
            f"of the oracle with {k} choice{'s' if k > 1 else ''}",
            f"worst problem {percent(entry.regret_worst)} behind",
        )
    at_3 = ranking.at(3)
    yield percent(at_3.regret_p95), "regret @3, p95", f"p50 {percent(at_3.regret_p50)}"
    near = found.validation.errors_near
    yield f"{near.median_factor:.3f}x", "median error near the fastest", f"{near.within_one_sigma:.0%} within one sigma"
    failures = found.validation.failures
    yield (
        f"{failures.foreseen:.1%}" if failures.failures else "none",
        "of failures foreseen" if failures.failures else "failures among the choices",
        f"{percent(failures.false_alarms)} false alarms",
    )


def _beside_baselines(found: Findings, charts: dict[str, str]) -> str:
    floor = found.comparison
    if floor.noise_floor_p50 is None or floor.noise_floor_p95 is None:
        noise = "The problems were timed in one round, so the noise floor is not known."
    else:
        noise = (
            f"Noise floor: timed a second time, the first round's fastest choice is {percent(floor.noise_floor_p50)} "
            f"(p50) and {percent(floor.noise_floor_p95)} (p95) behind the second's. "
            "No difference below it means anything."
        )
    who = [(name, _RANKERS.get(name, "judged elsewhere, on the same problems")) for name in found.rankings]
    right = tables.efficiency_table(found.rankings) + tables.baselines_by_regime(found.rankings)
    return section(
        "baselines", "Beside the baselines", beside(charts["efficiency"] + facts(who), right + paragraph(noise))
    )


def _by_regime(found: Findings, charts: dict[str, str]) -> str:
    ranking = next(iter(found.rankings.values()))
    return section("regimes", "Where time is lost", beside(charts["regret_by_regime"], tables.model_by_regime(ranking)))


def _predicted_times(found: Findings, charts: dict[str, str]) -> str:
    failures = found.validation.failures
    text = (
        f"{counted(failures.failures, 'choice')} failed when measured; the model took {failures.foreseen:.1%} of them "
        f"for likely failures, and {percent(failures.false_alarms)} of those that work."
    )
    doubt = "An honest doubt has 68% of the errors within one sigma, and 95% within two."
    right = tables.errors_table(found.validation) + paragraph(doubt) + paragraph(text)
    worst = tables.worst_predictions(found.validation.worst) if found.validation.worst else ""
    return section("times", "Predicted times", beside(charts["predicted_against_measured"], right), worst)


def _features(found: Findings, charts: dict[str, str]) -> str:
    text = (
        "Each feature is shuffled in turn, and the model judged again: what rises is what it got from that feature. "
        "Features that say the same can stand in for each other, so a low figure alone does not make one useless."
    )
    all_columns = folded(f"All {len(found.importance)} features", tables.importance_table(found.importance))
    return section("features", "What it looks at", beside(charts["feature_importance"], paragraph(text) + all_columns))


def _learning(found: Findings, charts: dict[str, str]) -> str:
    if found.curve is None:
        return ""
    first, last = found.curve.points[0], found.curve.points[-1]
    text = (
        f"Quick models, not the one of this report, trained on {counted(first.problems, 'problem')} to "
        f"{counted(last.problems, 'problem')}. A line that still rises at its end says that more data would help."
    )
    return section("learning", "What more data bring", beside(charts["learning_curve"], paragraph(text)))


def _model(found: Findings) -> str:
    card = found.card
    details = folded("Settings and figures of its training", facts(_settings(card)))
    return section("model", "The model", beside(facts(_card(card)), tables.files_table(found.files) + details))


def _card(card: ModelCard) -> Iterator[tuple[str, str]]:
    yield "Name", str(card)
    yield "Type", card.type
    if card.network is not None:
        network = card.network
        yield "Network", f"{network.members} x {network.type}, {network.layers} layers of {network.hidden}"
    yield "Purpose", card.purpose
    yield "Hardware", ", ".join(device.name for device in card.hardware)
    yield "Ops", ", ".join(card.ops)
    yield "Precisions", ", ".join(card.precisions)
    yield "Templates", ", ".join(card.templates)
    yield "Features", f"version {card.feature_schema}, {len(card.columns)} columns"
    yield "torch", ", ".join(card.torch)
    yield "triton", ", ".join(card.triton)
    for data in card.data:
        size = f"{counted(data.measurements, 'time')}, {counted(data.problems, 'problem')}"
        yield "Trained on", f"{data.name}: {size}, {data.sha256[:12]}"
    yield "Trained", card.trained
    yield "Command", card.command
    yield "Commit", card.commit
    yield "diode", card.diode
    yield "Weights", card.weights_sha256[:12]


def _settings(card: ModelCard) -> list[tuple[str, str]]:
    figures = [(name, f"{value:.4g}") for name, value in card.metrics.items()]
    return [*figures, ("seed", str(card.seed)), *((name, str(value)) for name, value in card.settings.items())]
