"""What torch's configuration names where diode chooses: it gives the handler, and tells torch's caches what it is.

A compile reads the configuration in whichever thread it runs, and the handler of a thread is made once and then kept.
So each handler made here asks, call by call, whether the configuration still names its factory, and steps aside if not.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Final

from torch._inductor import choices as inductor_choices
from torch._inductor import config as inductor_config
from torch._inductor import virtualized
from torch._inductor.choices import InductorChoices

from diode.integration.candidates import HookCall
from diode.integration.choices import DiodeInductorChoices
from diode.integration.policy import TopK
from diode.integration.statistics import Statistics
from diode.settings import OnMismatch

CONFIG: Final = "inductor_choices_class"
"""The option of Inductor that names a factory."""


@dataclass(frozen=True)
class Parameters:
    """Those of `DiodeInductorChoices`."""

    model_path: str | None = None
    device: str = "cpu"
    top_k_configs: TopK = 3
    enable_fallback: bool = True
    performance_threshold: float = 1.1
    on_mismatch: OnMismatch | None = None
    learn: str | None = None


class ChoicesFactory:
    """A value for `torch._inductor.config.inductor_choices_class`, and for `torch.compile(options=...)`."""

    def __init__(
        self,
        parameters: Parameters,
        *,
        wrapped: InductorChoices | None = None,
        added_templates: Collection[str] = (),
    ) -> None:
        self.parameters = parameters
        self.wrapped = wrapped
        self.added_templates = set(added_templates)
        """Templates that are there because diode switched them on: what falls back does without them."""
        self.engaged = True
        self._lock = threading.Lock()
        self._handler: ConfiguredChoices | None = None

    @property
    def handler(self) -> ConfiguredChoices:
        """Another one once something else is wrapped; it goes on with the counts of the one before."""
        with self._lock:
            handler = self._handler
            if handler is None or handler.wrapped is not self.wrapped:
                handler = ConfiguredChoices(self, None if handler is None else handler.statistics)
                self._handler = handler
            return handler

    def __call__(self) -> InductorChoices:
        """The handler, also put in place of one that its thread had made before it was told of this factory."""
        if not self.engaged:
            return _Disengaged()
        if (_named_factory() or self) is self:
            self._answer_in_this_thread()
        return self.handler

    def _answer_in_this_thread(self) -> None:
        present = getattr(virtualized.threadlocal, virtualized._choices._key, None)
        if type(present) is InductorChoices or isinstance(present, (ConfiguredChoices, _Disengaged)):
            virtualized.V.set_choices_handler(self.handler)

    def is_named_by_config(self) -> bool:
        """Whether torch's configuration, as it is in this thread, asks for this factory's choices.

        What it names comes before what is registered: the options of one compile before those of the process.
        """
        if not self.engaged:
            return False
        named = _named_factory()
        if named is not None:
            return named is self or _means(named.handler.uuid(), self.handler)
        return _registered_factory() is self or _means(getattr(inductor_config, CONFIG, None), self.handler)

    def __deepcopy__(self, memo: dict[int, Any]) -> ChoicesFactory:
        return self  # torch copies the values of its configuration

    def __reduce__(self) -> tuple[Any, ...]:
        # Torch 2.10 and 2.11 pickle the factory into the key of their caches, where the uuid makes the difference. They
        # call it only in a thread that has no handler yet, so this is where one that has compiled before is reached.
        if self.is_named_by_config():
            self._answer_in_this_thread()
        return _factory_of, (asdict(self.parameters), self.handler.uuid())


class ConfiguredChoices(DiodeInductorChoices):
    """The handler of a factory."""

    def __init__(self, factory: ChoicesFactory, statistics: Statistics | None = None) -> None:
        super().__init__(**asdict(factory.parameters), wrapped=factory.wrapped)
        self.factory = factory
        if statistics is not None:
            self.statistics = statistics

    def get_template_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
        if self.factory.is_named_by_config():
            current = self.factory.handler
            if current is not self:  # a thread keeps the handler that it once got
                return current.get_template_configs(*args, **kwargs)
            return super().get_template_configs(*args, **kwargs)
        asked = _named_factory() or _registered_factory()
        if asked is not None:
            return asked.handler.get_template_configs(*args, **kwargs)
        with self._standing_aside():
            return super().get_template_configs(*args, **kwargs)

    def _inductor_s(self, call: HookCall, choices: dict[str, Any]) -> list[Any]:
        if choices is call.template_choices:  # what was offered to us, not what we chose of it
            choices = {uid: some for uid, some in choices.items() if uid not in self.factory.added_templates}
        return super()._inductor_s(call, choices)

    def __reduce__(self) -> tuple[Any, ...]:
        return _handler_of, (asdict(self.factory.parameters), self.uuid())


def users_handler(handler: InductorChoices | None) -> InductorChoices | None:
    """Without torch's own, and without what diode was asked for in vain: of that, what it wraps."""
    if isinstance(handler, ConfiguredChoices) and not handler.factory.engaged:
        return handler.wrapped
    return None if type(handler) is InductorChoices or isinstance(handler, _Disengaged) else handler


class _Disengaged(InductorChoices):
    """Inductor's own choices, where a thread's configuration still names a factory that was taken back."""

    def uuid(self) -> str:
        return "diode-disengaged"


def _named_factory() -> ChoicesFactory | None:
    """The factory of diode's that torch's configuration names, as it is in this thread."""
    named = getattr(inductor_config, CONFIG, None)
    return named if isinstance(named, ChoicesFactory) and named.engaged else None


def _means(uuid: object, handler: ConfiguredChoices) -> bool:
    """Torch hands its configuration to another process with the uuid in the factory's place.

    The store may have grown between the two processes: what was learned is no reason not to choose.
    """
    return isinstance(uuid, str) and uuid.startswith(handler.identity)


def _registered_factory() -> ChoicesFactory | None:
    """The factory of diode's that torch has for the whole process, where it keeps such."""
    registered: Any = vars(inductor_choices).get("registered_inductor_choices", tuple)
    return next((found for _, found in registered() if isinstance(found, ChoicesFactory) and found.engaged), None)


def _factory_of(parameters: dict[str, Any], uuid: str) -> ChoicesFactory:
    return ChoicesFactory(Parameters(**parameters))


def _handler_of(parameters: dict[str, Any], uuid: str) -> ConfiguredChoices:
    return _factory_of(parameters, uuid).handler
