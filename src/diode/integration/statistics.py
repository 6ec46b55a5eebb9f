"""What a handler did, counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from diode.integration.decision import Decision

FallbackReason = Literal[
    "fallback_no_model",
    "fallback_unsupported_op",
    "fallback_feature_extraction",
    "fallback_prediction",
    "fallback_empty_result",
    "fallback_hardware_mismatch",
    "fallback_error",
]
FALLBACK_REASONS: Final[tuple[FallbackReason, ...]] = get_args(FallbackReason)

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "total_calls": "calls of Inductor's hook, of plain compiles too",
        "decisions": "GEMMs for which there was something to choose; the calls of one GEMM count once",
        "model_selections": "decisions that the model made",
        "store_answers": "of these, those whose first choice is what was measured here to be the fastest (DIODE_LEARN)",
        "store_corrections": "of these, those whose predictions were corrected by what was measured here (DIODE_LEARN)",
        "configs_filtered": "candidates that the model kept from being benchmarked",
        "fallback_no_model": "no model was found, or it could not be read",
        "fallback_unsupported_op": "the model does not know the op, its element type or its templates",
        "fallback_feature_extraction": "problem, device or candidates could not be put into numbers",
        "fallback_prediction": "the model raised an error or predicted no numbers",
        "fallback_empty_result": "no candidate was left that may be offered",
        "fallback_hardware_mismatch": "the model was trained on another kind of device, or on other software",
        "fallback_error": "anything else went wrong",
    }
)


class Statistics:
    """Counts of one handler; compiles in several threads add to it.

    At any time there are as many decisions as there are selections by the model and fallbacks together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds: list[float] = []

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def selected(self, decision: Decision) -> None:
        """By the model."""
        with self._lock:
            self._counts.update(_counts_of(decision))
            self._seconds.append(decision.seconds)

    def withdraw(self, decision: Decision) -> None:
        """What was counted as selected, and came to nothing."""
        with self._lock:
            self._counts.subtract(_counts_of(decision))

    def fell_back(self, reason: str) -> None:
        with self._lock:
            self._counts.update(("decisions", reason))

    def report(self) -> dict[str, int | float]:
        """Every count of `MEANINGS`, and how long decisions took."""
        with self._lock:
            seconds = sorted(self._seconds)
            counts: dict[str, int | float] = {name: self._counts[name] for name in MEANINGS}
        counts["decision_seconds_total"] = sum(seconds)
        counts["decision_seconds_median"] = seconds[len(seconds) // 2] if seconds else 0.0
        counts["decision_seconds_max"] = seconds[-1] if seconds else 0.0
        return counts


def _counts_of(decision: Decision) -> dict[str, int]:
    return {
        "decisions": 1,
        "model_selections": 1,
        "configs_filtered": decision.candidates - len(decision.picks),
        "store_answers": int(decision.measured_us is not None),
        "store_corrections": int(decision.corrected_by > 0),
    }
