"""Charts as files, and as a part of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.figure import Figure

from diode.report.style import LIGHT, RC, SIZE

PICTURE_SUFFIXES: Final = (".svg", ".png")
_PNG_DOTS: Final = 200
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True, eq=False)
class Picture:
    """A chart, drawn."""

    name: str
    """Of its files, and of its place in the page."""
    title: str
    description: str
    """What it shows, in words, also for those who cannot see it."""
    figure: Figure

    def svg(self) -> bytes:
        with _on_paper(self.figure), matplotlib.rc_context(RC):
            return _saved(self.figure, format="svg", metadata={**_NO_METADATA, "Title": self.title})

    def png(self) -> bytes:
        with _on_paper(self.figure), matplotlib.rc_context(RC):
            return _saved(self.figure, format="png", dpi=_PNG_DOTS)

    def inline(self) -> str:
        """An <svg> without a size, with the page's colours and fonts, and with no id that another one has too."""
        with matplotlib.rc_context(RC):
            text = _saved(self.figure, format="svg", metadata=_NO_METADATA).decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{self.name}-", text)
        text = text.replace("'DejaVu Sans'", "var(--font)")
        for name, colour in LIGHT.items():
            text = text.replace(colour, f"var(--{name})")
        box = re.search(r'viewBox="[^"]+"', text)
        assert box is not None
        head = (
            f'<svg {box[0]} xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
            f'aria-labelledby="{self.name}-title {self.name}-description">'
            f'<title id="{self.name}-title">{escape(self.title)}</title>'
            f'<desc id="{self.name}-description">{escape(self.description)}</desc>'
        )
        return head + re.sub(r"\s*\n\s*", " ", text[text.index(">") + 1 :])


def new_figure(height: float = SIZE[1]) -> Figure:
    return Figure(figsize=(SIZE[0], height))


def encoded(pictures: list[Picture], folder: Path) -> dict[Path, bytes]:
    """The files of all pictures, not yet written."""
    return {
        folder / f"{picture.name}{suffix}": content
        for picture in pictures
        for suffix, content in zip(PICTURE_SUFFIXES, (picture.svg(), picture.png()), strict=True)
    }


@contextmanager
def _on_paper(figure: Figure) -> Iterator[None]:
    """A file of its own has a background and says its title only in words around it."""
    figure.set_facecolor("white")
    try:
        yield
    finally:
        figure.set_facecolor("none")


def _saved(figure: Figure, **options: object) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, facecolor="auto", **options)  # type: ignore[arg-type]
    return buffer.getvalue()
