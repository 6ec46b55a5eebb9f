"""What an integration can change in torch, as it is at one moment: to tell whether all of it was taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import choices as inductor_choices
from torch._inductor import config as inductor_config
from torch._inductor import virtualized
from torch._inductor.choices import InductorChoices
from torch._inductor.select_algorithm import get_algorithm_selector_cache

_CONFIGS: Final[dict[str, ModuleType]] = {
    "": inductor_config,
    "torch._dynamo.config.": dynamo_config,
    "torch._functorch.config.": functorch_config,
}
"""By the prefix of their options' names; Inductor's have none, as in `config.patch`."""
_MISSING: Final = object()
_LISTS: Final = ("preprocessing_fns", "feedback_saver_fns")


@dataclass(frozen=True)
class Option:
    """What this thread reads, and what a thread reads that has set nothing."""

    value: object
    default: object


@dataclass(frozen=True)
class TorchState:
    options: Mapping[str, Option]
    handler: InductorChoices | None
    registered: tuple[Any, ...]
    functions: Mapping[str, tuple[Any, ...]]
    """Of Inductor's selection of algorithms."""
    methods: Mapping[str, object]
    """Of the class that every handler of choices is derived from."""

    @classmethod
    def now(cls) -> TorchState:
        options = {
            prefix + name: Option(_value(config, name), entry.default)
            for prefix, config in _CONFIGS.items()
            for name, entry in _entries(config).items()
            if entry.alias is None and not entry.deprecated
        }
        selector = get_algorithm_selector_cache()
        functions = {name: tuple(getattr(selector, name, ())) for name in _LISTS}
        return cls(options, _handler(), _registered(), functions, dict(vars(InductorChoices)))

    def changed_options(self, later: TorchState) -> dict[str, Option]:
        """Those that are another in the later state, with what they became."""
        return {name: option for name, option in later.options.items() if not _same(self.options.get(name), option)}

    def differences(self, later: TorchState) -> list[str]:
        """What is not as it was, in words; empty where nothing changed."""
        told = []
        for name, option in self.changed_options(later).items():
            before = self.options[name]
            told.append(f"option {name}: was {before.value!r} (default {before.default!r}), is {option.value!r}")
            told[-1] += f" (default {option.default!r})"
        if not _same_handler(self.handler, later.handler):
            told.append(f"the handler of choices: was {self.handler!r}, is {later.handler!r}")
        if self.registered != later.registered:
            told.append(f"registered choices: were {self.registered!r}, are {later.registered!r}")
        told += [
            f"{name} of the selection of algorithms: were {self.functions[name]!r}, are {found!r}"
            for name, found in later.functions.items()
            if found != self.functions[name]
        ]
        names = sorted(self.methods.keys() | later.methods.keys())
        told += [
            f"InductorChoices.{name} was replaced"
            for name in names
            if self.methods.get(name) is not later.methods.get(name)
        ]
        return told

    def restore(self) -> None:
        """Makes torch what it was, whatever became of it since."""
        now = TorchState.now()
        for name in self.changed_options(now):
            prefix = next(prefix for prefix in reversed(_CONFIGS) if name.startswith(prefix))
            config, short = _CONFIGS[prefix], name.removeprefix(prefix)
            _entries(config)[short].default = self.options[name].default
            _set_value(config, short, self.options[name].value)
        if not _same_handler(self.handler, now.handler):
            virtualized.V.set_choices_handler(self.handler or InductorChoices())
        for key, _ in set(now.registered) - set(self.registered):
            vars(inductor_choices)["unregister_inductor_choices"](key)
        selector = get_algorithm_selector_cache()
        for name, functions in self.functions.items():
            if functions != now.functions[name]:
                setattr(selector, name, list(functions))
        for name in self.methods.keys() | now.methods.keys():
            if name not in self.methods:
                delattr(InductorChoices, name)
            elif self.methods[name] is not now.methods.get(name):
                setattr(InductorChoices, name, self.methods[name])


@contextmanager
def torch_left_as_it_was() -> Iterator[TorchState]:
    """Gives the state before the block, and restores it after."""
    before = TorchState.now()
    try:
        yield before
    finally:
        before.restore()


class UsersChoices(InductorChoices):
    """What somebody else than diode has set for the choices."""

    def uuid(self) -> str:
        return "the user's own"


def set_users_handler() -> InductorChoices:
    handler = UsersChoices()
    virtualized.V.set_choices_handler(handler)
    return handler


def handler_in_place() -> InductorChoices:
    handler: InductorChoices = virtualized.V.choices
    return handler


def _entries(config: ModuleType) -> dict[str, Any]:
    entries: dict[str, Any] = vars(config)["_config"]
    return entries


def _value(config: ModuleType, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part, _MISSING)
    return value


def _set_value(config: ModuleType, name: str, value: object) -> None:
    *path, last = name.split(".")
    owner: object = config
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, last, value)


def _same(one: Option | None, other: Option) -> bool:
    return one is not None and _equal(one.value, other.value) and _equal(one.default, other.default)


def _equal(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def _handler() -> InductorChoices | None:
    handler: InductorChoices | None = getattr(virtualized.threadlocal, virtualized._choices._key, None)
    return handler


def _same_handler(one: InductorChoices | None, other: InductorChoices | None) -> bool:
    """Torch makes its own handler of a thread when that is first asked for."""
    own = (type(None), InductorChoices)
    return one is other or (type(one) in own and type(other) in own)


def _registered() -> tuple[Any, ...]:
    return tuple(getattr(inductor_choices, "registered_inductor_choices", tuple)())
