"""Timing models: what they learn from, how they are trained, judged, kept and found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diode.model.card import ModelCard
from diode.model.prediction import Prediction, TimingModel
from diode.model.registry import ModelMatch, ModelPointer, ModelRegistry
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import ModelWrapper

if TYPE_CHECKING:
    from diode.model.networks import MatmulTimingModel, ResidualTimingModel

__all__ = [
    "MatmulTimingModel",
    "MeasuredProblem",
    "ModelCard",
    "ModelMatch",
    "ModelPointer",
    "ModelRegistry",
    "ModelWrapper",
    "Prediction",
    "ResidualTimingModel",
    "TimingModel",
    "Truth",
]


def __getattr__(name: str) -> object:
    # The networks need torch, which is slow to import; predicting with a trained model does not.
    if name in ("MatmulTimingModel", "ResidualTimingModel"):
        from diode.model import networks

        return getattr(networks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
