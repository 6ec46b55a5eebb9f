"""What was measured on this machine before, for a handler; and the recording of what is measured now.

Whatever is wrong with the store costs what was learned, and never the compile: it is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from diode.features import ChoiceTable
from diode.integration.fallback import say_once
from diode.integration.feedback import AutotuneEvent
from diode.integration.listener import AutotuningListener
from diode.integration.policy import Ranked
from diode.integration.surroundings import software
from diode.learning.answers import Answer
from diode.learning.memory import NOTHING_KNOWN, Knowledge, Memory
from diode.learning.store import Autotuning, Outcome, StoreWriter
from diode.model.wrapper import ModelWrapper
from diode.types import Choice, Environment, Failure, Hardware, MMShape


class LearnedHere:
    """The store as one handler sees it."""

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._memory = Memory(self._folder)

    @property
    def digest(self) -> str:
        """Part of what the handler says that it is; empty where nothing was learned."""
        if self._folder is None:
            return ""
        try:
            damages = self._memory.store.damages
        except Exception as error:  # noqa: BLE001  # the boundary to a user's compile
            self._give_up(error)
            return ""
        if damages:
            more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
            say_once(f"damaged {self._folder}", f"{damages[0]}{more}; what else was learned is used")
        return self._memory.digest

    def knowledge(self, hardware: Hardware, model: ModelWrapper) -> Knowledge:
        if not self.digest:
            return NOTHING_KNOWN
        here = software()
        environment = Environment(hardware, torch=here.torch, triton=here.triton, template_hashes=here.template_hashes)
        try:
            return self._memory.of(environment, model)
        except Exception as error:  # noqa: BLE001  # the boundary to a user's compile
            self._give_up(error)
            return NOTHING_KNOWN

    def _give_up(self, error: Exception) -> None:
        say_once(
            f"learned {self._folder}",
            f"nothing is learned from {self._folder} ({type(error).__name__}: {error}); "
            "move it away, or unset DIODE_LEARN",
        )
        self._memory = Memory(None)


def known_first(
    knowledge: Knowledge,
    hardware: Hardware,
    sizes: Sequence[MMShape],
    table: ChoiceTable,
    ranked: Ranked,
    library_saving: float,
    choice_at: Callable[[int], Choice],
) -> tuple[int, Answer] | None:
    """The place of the candidate that was the fastest here, if that is known for this one size."""
    if len(sizes) > 1:
        return None
    found = knowledge.answer(hardware, sizes[0], table, ranked.prediction, ranked.legal.copy(), library_saving)
    if found is None:
        return None
    place = next((place for place in found.places if choice_at(place) == found.choice), None)
    return None if place is None else (place, found)


class Recording:
    """Appends to a store what the compiles of this process benchmark, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._writer = StoreWriter(folder)
        self._listener = AutotuningListener(self._append)

    def start(self) -> None:
        if not self._listener.entered:
            self._listener.__enter__()

    def stop(self) -> None:
        self._listener.__exit__(None, None, None)
        self._writer.close()

    def _append(self, event: AutotuneEvent, environment: Environment) -> None:
        if not isinstance(event.problem, MMShape) or not event.outcomes:
            return
        outcomes = []
        for choice, method, found in event.outcomes:
            timing, failure = (None, found) if isinstance(found, Failure) else (found, None)
            outcomes.append(Outcome(choice, method, timing, failure))
        self._writer.append(Autotuning(environment, event.problem, tuple(outcomes)))
