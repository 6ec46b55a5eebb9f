"""`diode report`: one page that needs nothing else, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import diode_here, refusal


@pytest.fixture
def words(h200: Path, model: Path) -> tuple[object, ...]:
    return ("report", "--model", model, "--dataset", h200 / "validation.msgpack")


def test_the_page_says_how_good_the_model_is_and_refers_to_nothing(
    words: tuple[object, ...], h200: Path, tmp_path: Path
) -> None:
    more = ("--training", h200 / "training.parquet", "--top", 3, "--plots", "charts")
    done = diode_here(tmp_path, *words, *more)
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text()
    for said in ("diode-matmul", "validation.msgpack", "static table", "<svg"):
        assert said in page
    assert not any(outside in page for outside in ("<script", "<link", 'src="http', 'href="http', "@import"))
    assert "report.html: report on diode-matmul 1, " in done.out
    assert done.out.endswith("MB; open it in a browser\n")
    suffixes = {path.suffix for path in (tmp_path / "charts").iterdir()}
    assert suffixes == {".png", ".svg"}
    validated = diode_here(tmp_path, "validate-model", *words[1:], "--json")
    efficiency = json.loads(validated.out)["ranking"]["overall"][0]["efficiency"]
    assert f"{efficiency:.2f}%" in page


def test_wrong_words_are_one_line_and_make_nothing(words: tuple[object, ...], h200: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong: list[tuple[tuple[object, ...], int, str]] = [
        (("--output", "page.pdf"), 2, "page.pdf: a report is a page; name it .html"),
        (("--output", "missing/page.html"), 2, "missing/page.html: its folder does not exist"),
        (("--plots", "file"), 2, "file: is a file; name a folder for --plots"),
        (("--learning-curve",), 2, "--learning-curve needs --training"),
        (("--gpu-minutes", 3), 2, "--gpu-minutes is for the axis of --learning-curve"),
        (("--device", "tpu"), 2, "--device tpu: use cpu, cuda, or cuda:1"),
        (("--dataset", "none.json"), 1, "none.json: cannot be read"),
        (("--learning-points", "none.json"), 1, "none.json"),
        (("--top", -1), 2, "Invalid value for '--top'"),
    ]
    for more, code, message in wrong:
        assert message in refusal(tmp_path, *words, *more, code=code)
    missing = ("report", "--model", "none.pt", "--dataset", h200)
    assert "none.pt: cannot be read: there is no such model" in refusal(tmp_path, *missing)
