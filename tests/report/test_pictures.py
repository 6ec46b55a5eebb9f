"""Charts as files, and what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tests.report.conftest import CURVE

from diode.model.evaluation import AtK, Evaluation
from diode.report.charts import draw_charts, efficiency_chart, learning_chart, regret_chart
from diode.report.curve import LearningCurve, LearningPoint
from diode.report.findings import Findings
from diode.report.pictures import Picture, encoded
from diode.report.words import percent


def ranking(efficiencies: dict[int, float]) -> Evaluation:
    entries = tuple(AtK(k, 1, efficiency, 0.0, 0.0, 0.0, 1.0) for k, efficiency in efficiencies.items())
    return Evaluation(1, entries, {}, {})


def lines_of(picture: Picture) -> dict[str, list[tuple[float, float]]]:
    (axes,) = picture.figure.axes
    return {str(line.get_label()): list(map(tuple, line.get_xydata())) for line in axes.get_lines()}


def test_each_chart_is_written_as_png_and_svg(pictures: list[Picture], tmp_path: Path) -> None:
    files = encoded(pictures, tmp_path)
    assert {path.suffix for path in files} == {".png", ".svg"}
    assert len(files) == 2 * len(pictures)
    for path, content in files.items():
        path.write_bytes(content)
    for picture in pictures:
        drawn = matplotlib.image.imread(tmp_path / f"{picture.name}.png")
        assert drawn.shape[1] == 1000
        assert drawn.shape[0] >= 300
        assert np.ptp(drawn[..., :3]) > 0.5  # ink on paper
        assert tuple(drawn[0, 0]) == (1.0, 1.0, 1.0, 1.0)
        root = ET.parse(tmp_path / f"{picture.name}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        words = "".join(root.itertext())
        assert picture.title in words


def test_files_are_the_same_each_time(found: Findings) -> None:
    for first, again in zip(draw_charts(found), draw_charts(found), strict=True):
        assert (first.name, first.svg()) == (again.name, again.svg())


def test_a_chart_in_a_page_takes_the_pages_colours_and_fonts(pictures: list[Picture]) -> None:
    for picture in pictures:
        inline = picture.inline()
        assert not re.search(r"#[0-9a-f]{6}\b", inline)
        assert "var(--font)" in inline
        assert "DejaVu" not in inline
        assert "<style" not in inline
        root = ET.fromstring(inline)
        assert "width" not in root.attrib
        assert root.attrib["viewBox"]
        assert (root[0].text, root[1].text) == (picture.title, picture.description)


def test_the_efficiency_chart_has_a_line_for_each_ranking_and_the_noise_floor() -> None:
    rankings = {"model": ranking({1: 90.0, 3: 99.0}), "other": ranking({1: 50.0, 3: 75.0})}
    found = lines_of(efficiency_chart(rankings, noise_floor=0.01))
    assert set(found) == {"model", "other", "noise floor"}
    assert [k for k, _ in found["model"]] == [1, 3]
    # each tenfold less that is left to gain is one step up
    assert found["model"][1][1] - found["model"][0][1] == pytest.approx(1.0)
    assert found["other"][1][1] - found["other"][0][1] == pytest.approx(np.log10(2.0))
    assert found["noise floor"][0][1] == pytest.approx(-np.log10(1 - 1 / 1.01))
    assert "noise floor" not in lines_of(efficiency_chart(rankings, noise_floor=None))


def test_perfect_efficiency_can_be_drawn() -> None:
    chart = efficiency_chart({"model": ranking({1: 100.0, 3: 100.0})}, noise_floor=0.0)
    assert np.isfinite(lines_of(chart)["model"]).all()
    assert b"<svg" in chart.svg()


def test_the_regret_chart_has_the_regimes_that_there_are_and_all(found: Findings) -> None:
    chart = regret_chart(found.regrets, found.regimes)
    (axes,) = chart.figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    counts = {name: found.regimes.count(name) for name in found.regimes}
    assert set(labels) == {f"{name}\n({count})" for name, count in counts.items()} | {f"all\n({found.problems})"}
    p95 = [percent(float(np.percentile(found.regrets.at(k) - 1.0, 95))) for k in (1, 3)]
    assert f"p95 over all: {p95[0]} with k=1, {p95[1]} with k=3." in chart.description


def test_labels_of_a_learning_curve_do_not_run_into_one_another() -> None:
    sizes = [487, 625, 1217, 2352, 4959]
    points = tuple(LearningPoint(n, n, n / 1000, 50.0, 60.0) for n in sizes)
    chart = learning_chart(LearningCurve(points, 10))
    canvas = FigureCanvasAgg(chart.figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    (axes,) = chart.figure.axes
    (above,) = axes.child_axes
    for axis in (axes.xaxis, above.xaxis):
        boxes = [label.get_window_extent(renderer) for label in axis.get_ticklabels()]
        assert len(boxes) >= 3
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert axes.get_xticklabels()[-1].get_text() == "4.96k"
    assert len(lines_of(chart)["k = 1"]) == len(sizes)


def test_a_learning_curve_without_minutes_has_no_axis_for_them() -> None:
    points = tuple(LearningPoint(p.problems, p.measurements, None, p.efficiency_at_1, 99.0) for p in CURVE.points)
    assert not learning_chart(LearningCurve(points, 12)).figure.axes[0].child_axes
    assert learning_chart(CURVE).figure.axes[0].child_axes
