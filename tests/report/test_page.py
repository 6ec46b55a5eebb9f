"""The report's page, as a browser shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.report.browser import Page

from diode.model.card import TrainingData
from diode.report.findings import Findings
from diode.report.page import render
from diode.report.pictures import Picture

CHARTS = ["efficiency", "regret_by_regime", "predicted_against_measured", "feature_importance", "learning_curve"]
LARGEST_SECTIONS = {"Beside the baselines", "Where time is lost", "Predicted times", "What it looks at", "The model"}
DRAWN = """[...document.querySelectorAll('.chart')].map(chart => {
  const size = chart.querySelector('svg').getBoundingClientRect();
  const marks = [...chart.querySelectorAll('svg :is(path, use)')].map(mark => mark.getBoundingClientRect());
  const seen = marks.filter(mark => mark.width + mark.height > 0);
  const texts = [...chart.querySelectorAll('svg text')].filter(text => text.getBoundingClientRect().width > 0);
  return {name: chart.id, width: size.width, height: size.height, marks: seen.length, texts: texts.length};
})"""
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth, window.innerWidth]"
COLOURS = """(() => {
  const paper = getComputedStyle(document.body).backgroundColor;
  const text = document.querySelector('.chart svg text');
  const line = document.querySelector('#efficiency svg [style*="--blue"]');
  return [paper, getComputedStyle(text).fill, getComputedStyle(line).stroke];
})()"""


class Outline(HTMLParser):
    """What a page consists of, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]


@pytest.fixture(scope="module")
def text(found: Findings, pictures: list[Picture]) -> str:
    return render(found, pictures).decode()


@pytest.fixture(scope="module")
def page(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text)
    return path


@pytest.mark.parametrize("width", [1400, 400])
def test_a_browser_draws_all_charts_asks_for_nothing_and_complains_of_nothing(
    browser: Page, page: Path, width: int
) -> None:
    browser.open(page, width)
    drawn: list[dict[str, Any]] = browser.evaluate(DRAWN)
    assert [chart["name"] for chart in drawn] == CHARTS
    for chart in drawn:
        assert 0.3 * width < chart["width"] <= width
        assert chart["height"] > 150
        assert chart["marks"] >= 10
        assert chart["texts"] >= 5
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []


@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_is_no_wider_than_the_screen(browser: Page, page: Path, width: int) -> None:
    browser.open(page, width)
    browser.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert browser.evaluate(WIDTHS) == [width, width, width]
    clipped = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length"
    boxes = browser.evaluate("document.querySelectorAll('.scroll').length")
    # wide screens show every table whole; a phone scrolls them inside their boxes
    assert browser.evaluate(clipped) == 0 if width == 1400 else 0 < browser.evaluate(clipped) <= boxes


def test_a_dark_screen_gets_other_colours_in_page_and_charts(browser: Page, page: Path) -> None:
    browser.open(page, 1400)
    light = browser.evaluate(COLOURS)
    browser.open(page, 1400, scheme="dark")
    dark = browser.evaluate(COLOURS)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_what_a_page_would_load_is_refused_by_the_page_itself(browser: Page, page: Path, text: str) -> None:
    """The policy is real: a picture and a script put into the page are not fetched, not run."""
    (page.parent / "more.js").write_text("document.title = 'run';")
    spoilt = page.with_name("spoilt.html")
    spoilt.write_text(text.replace("</body>", '<img src="more.png"><script src="more.js"></script></body>'))
    browser.open(spoilt, 1400)
    assert browser.evaluate("document.title").endswith("diode report")
    assert len([said for said in browser.complaints if "Content Security Policy" in said]) == 2


def test_the_page_refers_to_nothing_outside_itself(text: str) -> None:
    outline = Outline(text)
    assert not outline.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    references = [value for name, value in outline.attributes if name.split(":")[-1] in ("href", "src", "data")]
    assert references
    assert {value.removeprefix("#") for value in references} <= set(outline.ids)
    assert all(value.startswith("#") for value in references)
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    policies = [value for name, value in outline.attributes if name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies


def test_ids_are_unique_and_labels_lead_somewhere(text: str) -> None:
    outline = Outline(text)
    assert len(outline.ids) == len(set(outline.ids))
    labels = [value.split() for name, value in outline.attributes if name == "aria-labelledby"]
    assert {label for labelled in labels for label in labelled} <= set(outline.ids)


def test_text_that_comes_in_is_shown_as_it_is(
    browser: Page, page: Path, found: Findings, pictures: list[Picture]
) -> None:
    browser.open(page, 1400)
    shown = browser.evaluate("document.body.innerText")
    assert browser.evaluate("document.title") == "<small> & made-up 1 · diode report"
    assert browser.evaluate("document.querySelector('h1').textContent") == "<small> & made-up 1"
    assert "<judged>.parquet" in shown
    hostile = '"><script>document.title="run"</script><b onclick=x>'
    spoilt = replace(found, card=msgspec.structs.replace(found.card, name=hostile, command=hostile, purpose=hostile))
    other = page.with_name("hostile.html")
    other.write_bytes(render(spoilt, pictures))
    assert "script" not in Outline(other.read_text()).tags
    assert ("onclick", "x") not in Outline(other.read_text()).attributes
    browser.open(other, 1400)
    assert browser.evaluate("document.querySelector('h1').textContent") == f"{hostile} 1"


def test_the_page_says_what_was_found(browser: Page, page: Path, found: Findings) -> None:
    browser.open(page, 1400)
    titles = set(browser.evaluate("[...document.querySelectorAll('h2')].map(title => title.textContent)"))
    assert titles > LARGEST_SECTIONS
    tiles = browser.evaluate("[...document.querySelectorAll('.tile b')].map(figure => figure.textContent)")
    model = found.rankings["model"]
    assert tiles[:3] == [f"{model.at(k).efficiency:.2f}%" for k in (1, 3, 8)]
    rows = browser.evaluate(
        "[...document.querySelectorAll('#baselines ~ * table')][0].innerText.split('\\n').map(row => row.split('\\t'))"
    )
    assert [row[0] for row in rows if len(row) > 1] == ["k =", *found.rankings]
    expected = [f"{entry.efficiency:.2f}" for entry in found.rankings["static table"].overall]
    assert next(row[1:] for row in rows if row[0] == "static table") == expected
    shown = browser.evaluate("document.body.innerText")
    for entry in (*found.worst, *found.validation.worst):
        assert entry.problem in shown


def test_figures_that_flatter_are_said_to(browser: Page, page: Path, found: Findings, pictures: list[Picture]) -> None:
    notes = "[...document.querySelectorAll('.note')].map(note => note.textContent)"
    source = TrainingData("judged.parquet", found.files[0].sha256, 1, 1)
    flattering = replace(found, card=msgspec.structs.replace(found.card, data=(source,)), twins_in_training=2)
    honest = replace(found, twins_in_training=0)
    said = []
    for findings in (honest, flattering):
        page.with_name("notes.html").write_bytes(render(findings, pictures))
        browser.open(page.with_name("notes.html"), 1400)
        said.append(browser.evaluate(notes))
    assert said[0] == []
    assert said[1][0].startswith("The model was trained on <judged>.parquet: it is judged by what it has seen")
    assert said[1][1].startswith(f"2 of {found.problems} problems have a problem of the same sizes in the training")


def test_without_a_curve_or_worst_problems_their_sections_are_left_out(
    found: Findings, pictures: list[Picture]
) -> None:
    less = replace(found, curve=None, worst=())
    text = render(less, [picture for picture in pictures if picture.name != "learning_curve"]).decode()
    assert 'id="learning"' not in text
    assert 'id="worst-problems"' not in text
    assert 'id="learning"' in render(found, pictures).decode()
