"""Puts a factory of choices into torch for the whole process, and takes it out again."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch._inductor import choices as inductor_choices
from torch._inductor import config as inductor_config
from torch._inductor import virtualized
from torch._inductor.choices import InductorChoices

from diode.errors import DiodeError, IntegrationError
from diode.integration.factory import CONFIG, ChoicesFactory, ConfiguredChoices, users_handler
from diode.integration.fallback import say_once
from diode.integration.learned import Recording
from diode.integration.operation import stop_taking_back
from diode.integration.persistent import ADDED_TEMPLATES, OnForStaticGemms

REGISTRY: Final = "register_inductor_choices"
HOOKS: Final = ("_finalize_template_configs", "_finalize_mm_configs")
_CONFIG: Final[dict[str, Any]] = vars(inductor_config)["_config"]
_KEY: Final = "diode"
_PERSISTENT_TMA: Final = "triton.enable_persistent_tma_matmul"
_REMEMBERED_BY_THREADS: Final = {
    "_hash_dirty_var": True,
    "_hash_cache_var": None,
    "_get_dict_dirty_keys_var": None,
    "_get_dict_cache_var": None,
}
"""Where torch 2.13 keeps, for each thread, its configuration as it was last read, and what stands there at first."""


def probe() -> str:
    """Registers a dummy handler, has Inductor call it, and takes it back: the interface by which diode can register."""
    if not hasattr(InductorChoices, "get_template_configs") or not any(hasattr(InductorChoices, n) for n in HOOKS):
        raise IntegrationError(
            f"this torch has none of {', '.join(HOOKS)}, by which choices could be made: install torch 2.10 or later"
        )
    called: list[str] = []

    class Dummy(InductorChoices):
        def _finalize_template_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
            called.append(HOOKS[0])
            return []

        def _finalize_mm_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
            called.append(HOOKS[1])
            return []

    with virtualized.V.set_choices_handler(Dummy()):
        inputs: Any = _TwoInputs()
        virtualized.V.choices.get_template_configs(inputs, [], "mm")
    if called != [HOOKS[0]]:
        what = f"calls {', '.join(called)}" if called else "calls none of its hooks"
        raise IntegrationError(f"this torch {what} where diode answers {HOOKS[0]}: install torch 2.10 or later")
    if hasattr(inductor_choices, REGISTRY):
        return REGISTRY
    if hasattr(inductor_config, CONFIG):
        return CONFIG
    raise IntegrationError(
        f"this torch has no config.{CONFIG}, which its caches must know: install torch 2.10 or later"
    )


class _TwoInputs:
    """As much of a GEMM's inputs as is looked at where no template is to be tried."""

    device_type: Final = "cpu"

    def nodes(self) -> list[None]:
        return [None, None]

    def output_layout(self, flexible: bool = True) -> None:
        return None


@dataclass
class Installation:
    """A factory that is in force for the process, with what was there before."""

    factory: ChoicesFactory
    path: str
    _prior_handler: InductorChoices | None = None
    _prior_wrapped: InductorChoices | None = None
    """Of the factory: what is found in place is wrapped for as long as the factory is in force."""
    _options: dict[str, _Option] = field(default_factory=dict)
    _recording: Recording | None = None

    @classmethod
    def of(cls, factory: ChoicesFactory) -> Installation:
        """Engages a factory. A handler that was set by hand, or that the configuration named, is wrapped by it."""
        path = probe()
        _ = factory.handler  # whatever is wrong with its parameters shows before anything is changed
        prior = users_handler(_handler_of_this_thread())
        named = getattr(inductor_config, CONFIG, None)
        installation = cls(factory, path, prior, factory.wrapped)
        if factory.wrapped is None:
            factory.wrapped = prior if prior is not None or named is None else users_handler(named())
        factory.engaged = True
        if path == REGISTRY:
            vars(inductor_choices)[REGISTRY](_KEY, factory)
        else:
            installation.set_option(CONFIG, factory)
        virtualized.V.set_choices_handler(factory.handler)
        return installation

    def set_option(self, name: str, value: object) -> None:
        """Sets an option of Inductor for all threads; `take_out` sets it back."""
        self._options[name] = _Option.set_to(name, value)

    def enable_persistent_tma(self) -> tuple[str, ...]:
        """Has Inductor offer the persistent TMA templates, unless somebody has set the option."""
        if _PERSISTENT_TMA not in _CONFIG or _CONFIG[_PERSISTENT_TMA].default:
            return ()
        if inductor_config.triton.enable_persistent_tma_matmul:
            return ()
        self.set_option(_PERSISTENT_TMA, OnForStaticGemms())
        self.factory.added_templates.update(ADDED_TEMPLATES)
        return (_PERSISTENT_TMA,)

    def record_into(self, folder: Path) -> None:
        """Has a store keep what compiles benchmark from here on; where that cannot be done, it is said."""
        recording = Recording(folder)
        try:
            recording.start()
        except DiodeError as error:
            say_once(f"recording {folder}", f"nothing is recorded into {folder}: {error}")
        else:
            self._recording = recording

    def take_out(self) -> None:
        """Compiles under way in other threads make Inductor's own choices from here on."""
        if self._recording is not None:
            self._recording.stop()
        answered = isinstance(_handler_of_this_thread(), ConfiguredChoices)
        self.factory.engaged = False
        self.factory.wrapped = self._prior_wrapped
        if self.path == REGISTRY:
            vars(inductor_choices)[f"un{REGISTRY}"](_KEY)
        for name, option in reversed(self._options.items()):
            option.restore(name)
        if answered:
            virtualized.V.set_choices_handler(self._prior_handler or InductorChoices())
        stop_taking_back()


@dataclass(frozen=True)
class _Option:
    """An option of Inductor as it was: the default of all threads, and what this thread has set."""

    default: object
    value: object

    @classmethod
    def set_to(cls, name: str, value: object) -> _Option:
        entry = _CONFIG[name]
        before = cls(entry.default, _value(name))
        entry.default = value
        _assign(name, value)
        _have_all_threads_look_again()
        return before

    def restore(self, name: str) -> None:
        _CONFIG[name].default = self.default
        _assign(name, self.value)
        _have_all_threads_look_again()


def _value(name: str) -> object:
    value: object = inductor_config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _assign(name: str, value: object) -> None:
    """Beside the default: torch then knows that what it remembers of its configuration is out of date."""
    *path, last = name.split(".")
    owner: object = inductor_config
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, last, value)


def _have_all_threads_look_again() -> None:
    """A thread that has compiled before would not notice that a default was changed."""
    for name, at_first in _REMEMBERED_BY_THREADS.items():
        if name in vars(inductor_config):
            setattr(inductor_config, name, ContextVar(name, default=at_first))


def _handler_of_this_thread() -> InductorChoices | None:
    handler: InductorChoices | None = getattr(virtualized.threadlocal, virtualized._choices._key, None)
    return handler
