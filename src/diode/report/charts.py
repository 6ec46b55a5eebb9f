"""The charts of a report, each drawn from what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from diode.model.evaluation import REGIMES, Evaluation, Regrets
from diode.report.curve import LearningCurve
from diode.report.findings import Findings, PredictedTimes
from diode.report.importance import Importance
from diode.report.pictures import Picture, new_figure
from diode.report.style import LIGHT, RC
from diode.report.words import microseconds, percent

_SERIES: Final = {
    "model": ("blue", "-", "o"),
    "model in full": ("sky", "--", "s"),
    "library": ("orange", "-", "^"),
    "static table": ("green", "-", "D"),
    "random": ("gray", "-", "v"),
}
_MORE_SERIES: Final = (("purple", "-", "P"), ("amber", "-", "X"), ("purple", ":", "p"), ("amber", ":", "d"))
_EFFICIENCIES: Final = (0.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95)
_QUANTILES: Final = ((50, 1.0), (75, 0.66), (90, 0.42), (95, 0.27), (99, 0.15))
_REGRETS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_WIDE_REGRETS: Final = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_FEATURES: Final = 16
_LABEL_SHARE: Final = 0.14
"""The part of an axis that one label takes."""


def draw_charts(found: Findings) -> list[Picture]:
    with matplotlib.rc_context(RC):
        pictures = [
            efficiency_chart(found.rankings, found.comparison.noise_floor_p50),
            regret_chart(found.regrets, found.regimes),
            prediction_chart(found.times, found.validation.errors.median_factor),
            importance_chart(found.importance),
        ]
        return pictures if found.curve is None else [*pictures, learning_chart(found.curve)]


def efficiency_chart(rankings: Mapping[str, Evaluation], noise_floor: float | None) -> Picture:
    figure = new_figure()
    axes = figure.add_subplot()
    more = iter(_MORE_SERIES * len(rankings))
    values = [entry.efficiency for ranking in rankings.values() for entry in ranking.overall]
    lowest, highest = _stretched(np.array([min(values), max(values)]))
    for name, ranking in rankings.items():
        colour, line, marker = _SERIES.get(name) or next(more)
        axes.plot(
            [entry.k for entry in ranking.overall],
            _stretched(np.array([entry.efficiency for entry in ranking.overall])),
            color=LIGHT[colour],
            linestyle=line,
            marker=marker,
            label=name,
            linewidth=2.6 if name == "model" else 1.6,
            zorder=4 if name == "model" else 3,
        )
    if noise_floor is not None:
        floor = float(_stretched(np.array([100.0 / (1.0 + noise_floor)]))[0])
        highest = max(highest, floor)
        axes.axhline(floor, color=LIGHT["muted"], linestyle=":", linewidth=1.2, label="noise floor")
    counts = [entry.k for entry in next(iter(rankings.values())).overall]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(count) for count in counts])
    axes.set_xlabel("choices that are benchmarked (k)")
    _efficiency_axis(axes, lowest, highest)
    figure.legend(loc="outside lower center", ncols=3, handlelength=2.2, columnspacing=1.4)
    model = next(iter(rankings.values()))
    first, last = model.overall[0], model.overall[-1]
    return Picture(
        "efficiency",
        "Efficiency by number of choices",
        f"Percent of the oracle against k, for {', '.join(rankings)}. The model reaches {first.efficiency:.1f}% with "
        f"k={first.k} and {last.efficiency:.1f}% with k={last.k}. The axis is stretched towards 100%.",
        figure,
    )


def regret_chart(found: Regrets, regimes: Sequence[str]) -> Picture:
    """For each regime, up to which regret so many percent of its problems are: the darker, the more of them."""
    array = np.array(regimes)
    groups: list[tuple[str, NDArray[np.intp]]] = [
        (name, np.flatnonzero(array == name)) for name in REGIMES if name in regimes
    ]
    groups.append(("all", np.arange(len(array))))
    rows = len(groups)
    figure = new_figure(height=1.45 + 0.42 * rows)
    axes = figure.add_subplot()
    largest = 0.02
    for k, colour, offset in ((1, "blue", 0.19), (3, "green", -0.19)):
        for place, (_, members) in enumerate(groups):
            regret = found.at(k)[members] - 1.0
            y = rows - 1 - place + offset
            largest = max(largest, float(regret.max()))
            for share, opacity in reversed(_QUANTILES):
                axes.barh(
                    y, np.percentile(regret, share), height=0.3, color=to_rgb(LIGHT[colour]), alpha=opacity, linewidth=0
                )
            axes.plot(
                regret.max(), y, marker="|", color=LIGHT[colour], markersize=8, markeredgewidth=1.8, clip_on=False
            )
        axes.bar(0, 0, color=LIGHT[colour], label=f"k = {k}")
    axes.plot([], [], marker="|", color=LIGHT["muted"], linestyle="none", markersize=8, label="worst")
    axes.set_xscale("symlog", linthresh=0.01, linscale=0.6)
    axes.set_xlim(0, largest * 1.05)
    ticks = [tick for tick in (_REGRETS if largest < 1.5 else _WIDE_REGRETS) if tick <= largest * 1.05]
    _ticks(axes.set_xticks, ticks, lambda tick: f"{100 * tick:g}%")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("regret: p50, p75, p90, p95, p99, each lighter than the one before")
    axes.set_yticks(range(rows))
    axes.set_yticklabels([f"{name}\n({len(members)})" for name, members in reversed(groups)])
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside lower center", ncols=3, handlelength=1.2)
    return Picture(
        "regret_by_regime",
        "Regret by regime",
        "For each regime and for all problems, the percentiles of how much longer the best of the model's first k "
        f"choices takes than the oracle. p95 over all: {percent(_p95(found, 1))} with k=1, {percent(_p95(found, 3))} "
        "with k=3.",
        figure,
    )


def prediction_chart(times: PredictedTimes, median_factor: float) -> Picture:
    figure = new_figure(height=4.1)
    axes = figure.add_subplot()
    both = np.concatenate([times.measured_us, times.predicted_us])
    lowest, highest = float(both.min()) / 1.3, float(both.max()) * 1.3
    extent = (np.log10(lowest), np.log10(highest)) * 2
    cells = axes.hexbin(
        times.measured_us, times.predicted_us, gridsize=46, xscale="log", yscale="log", mincnt=1, extent=extent
    )
    density = np.log1p(np.asarray(cells.get_array(), dtype=np.float64))
    cells.set_array(None)
    cells.set_facecolor([(*to_rgb(LIGHT["blue"]), share) for share in 0.12 + 0.88 * density / density.max()])
    cells.set_edgecolor("none")
    line = np.array([lowest, highest])
    axes.plot(line, line, color=LIGHT["ink"], linewidth=1.0, label="as measured")
    for factor in (2.0, 0.5):
        label = "off by 2x" if factor == 2.0 else None
        axes.plot(line, line * factor, color=LIGHT["orange"], linewidth=1.0, linestyle="--", label=label)
    axes.set_xlim(lowest, highest)
    axes.set_ylim(lowest, highest)
    axes.set_aspect("equal")
    powers = [10.0**power for power in range(-1, 9) if lowest <= 10.0**power <= highest]
    for setter, axis in ((axes.set_xticks, axes.xaxis), (axes.set_yticks, axes.yaxis)):
        _ticks(setter, powers, microseconds)
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("measured")
    axes.set_ylabel("predicted")
    figure.legend(loc="outside lower center", ncols=2)
    return Picture(
        "predicted_against_measured",
        "Predicted against measured time",
        f"Density of {len(times.measured_us)} choices on logarithmic axes; on the line the prediction is right. "
        f"Half of them are off by less than a factor of {median_factor:.3f}.",
        figure,
    )


def importance_chart(importance: Sequence[Importance]) -> Picture:
    shown = importance[:_FEATURES]
    figure = new_figure(height=0.8 + 0.23 * len(shown))
    axes = figure.add_subplot()
    axes.barh(
        [entry.column for entry in reversed(shown)],
        [100.0 * entry.regret for entry in reversed(shown)],
        height=0.62,
        color=LIGHT["blue"],
        linewidth=0,
    )
    axes.set_xlabel("rise of regret with 1 choice, in points, when shuffled")
    axes.tick_params(axis="y", labelcolor=LIGHT["ink"], length=0)
    axes.grid(visible=False, axis="y")
    leading = ", ".join(f"{entry.column} {100.0 * entry.regret:.1f}" for entry in shown[:3])
    return Picture(
        "feature_importance",
        "Feature importance",
        "How many percentage points the geometric mean regret with one choice rises when a feature is shuffled among "
        f"the problems and choices; the first {len(shown)} of {len(importance)}. At the top: {leading}.",
        figure,
    )


def learning_chart(curve: LearningCurve) -> Picture:
    figure = new_figure()
    axes = figure.add_subplot()
    measurements = [point.measurements for point in curve.points]
    series = (
        ("k = 1", "blue", "o", [point.efficiency_at_1 for point in curve.points]),
        ("k = 3", "green", "D", [point.efficiency_at_3 for point in curve.points]),
    )
    stretched = [_stretched(np.array(values)) for _, _, _, values in series]
    for (name, colour, marker, _), values in zip(series, stretched, strict=True):
        axes.plot(measurements, values, color=LIGHT[colour], marker=marker, label=name)
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    shown = _apart(measurements)
    _ticks(axes.set_xticks, [measurements[place] for place in shown], _short_count)
    axes.set_xlabel("measurements")
    _efficiency_axis(axes, float(np.min(stretched)), float(np.max(stretched)))
    minutes = [point.gpu_minutes for point in curve.points if point.gpu_minutes is not None]
    if len(minutes) == len(measurements):
        above = axes.secondary_xaxis("top")
        above.xaxis.set_minor_locator(NullLocator())
        above.set_xticks([measurements[place] for place in shown], [f"{minutes[place]:.2g}" for place in shown])
        timed = " in timed repeats" if curve.minutes_are == "timed repeats" else ""
        above.set_xlabel(f"minutes of GPU time{timed}", color=LIGHT["muted"])
    figure.legend(loc="outside lower center", ncols=2)
    last = curve.points[-1]
    return Picture(
        "learning_curve",
        "Learning curve",
        f"Efficiency of quick models trained on growing shares of the data, on {curve.held_out} problems that none of "
        f"them saw: with {last.measurements} measurements {last.efficiency_at_1:.1f}% for k=1 and "
        f"{last.efficiency_at_3:.1f}% for k=3.",
        figure,
    )


def _stretched(efficiency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each step up the axis halves, or better, what is left to gain."""
    left = np.maximum(1.0 - efficiency / 100.0, 1.0 - _EFFICIENCIES[-1] / 100.0)
    stretched: NDArray[np.float64] = -np.log10(left)
    return stretched


def _efficiency_axis(axes: Axes, lowest: float, highest: float) -> None:
    places = _stretched(np.array(_EFFICIENCIES))
    first = max(int(np.searchsorted(places, lowest, side="right")) - 1, 0)
    last = min(int(np.searchsorted(places, highest)), len(places) - 1)
    axes.set_ylim(places[first], places[last] + 0.05)
    axes.set_yticks(places[first : last + 1], [f"{value:g}%" for value in _EFFICIENCIES[first : last + 1]])
    axes.set_ylabel("percent of the oracle")


def _ticks(setter: Callable[..., object], places: Sequence[float], text: Callable[[float], str]) -> None:
    setter(places, [text(place) for place in places])


def _apart(values: Sequence[float]) -> list[int]:
    """Places of rising values whose labels do not run into one another on a logarithmic axis; the last is one."""
    places = np.log(values)
    least = _LABEL_SHARE * (places[-1] - places[0])
    kept = [len(values) - 1]
    for place in range(len(values) - 2, -1, -1):
        if places[kept[-1]] - places[place] >= least:
            kept.append(place)
    return kept[::-1]


def _short_count(number: float) -> str:
    return f"{number / 1000:.3g}k" if number >= 1000 else f"{number:g}"


def _p95(found: Regrets, k: int) -> float:
    return float(np.percentile(found.at(k) - 1.0, 95))
