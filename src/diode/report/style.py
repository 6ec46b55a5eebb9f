"""How charts look: one palette that colour-blind readers can tell apart, in a light and a dark scheme."""

from __future__ import annotations

from typing import Any, Final

from diode.errors import MissingDependencyError

# A chart is drawn in the light colours. The page replaces each by the variable of its name, which has two values.
LIGHT: Final = {
    "ink": "#1c2128",
    "muted": "#59636e",
    "grid": "#dfe3e8",
    "blue": "#0069b4",
    "orange": "#d45500",
    "green": "#00875f",
    "purple": "#a8508f",
    "sky": "#4a9fd8",
    "amber": "#b98300",
    "gray": "#7b848e",
}
DARK: Final = {
    "ink": "#e6eaef",
    "muted": "#a0a9b4",
    "grid": "#333b45",
    "blue": "#58b0f5",
    "orange": "#ff8c4d",
    "green": "#35c495",
    "purple": "#e091c8",
    "sky": "#2f83bd",
    "amber": "#eebc3f",
    "gray": "#8f99a4",
}

SIZE: Final = (5.0, 3.75)
"""Inches. Small, so that text stays legible where a page is as narrow as a phone."""

RC: Final[Any] = {
    "axes.edgecolor": LIGHT["grid"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.labelcolor": LIGHT["ink"],
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "diode",
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["grid"],
    "xtick.labelcolor": LIGHT["muted"],
    "xtick.labelsize": 9.5,
    "xtick.minor.visible": False,
    "ytick.color": LIGHT["grid"],
    "ytick.labelcolor": LIGHT["muted"],
    "ytick.labelsize": 9.5,
    "ytick.minor.visible": False,
}


def require_matplotlib() -> None:
    """Refuses before any work what could not be drawn after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "a report", "report") from error
