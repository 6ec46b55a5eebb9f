"""What diode meets in the torch that runs this, found by trying it; printed as one JSON object.

scripts/torch_versions.py runs it in the environment of each torch. No GPU is needed: an addmm is lowered for a
described one, and a product is autotuned on the CPU.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import msgspec
import torch
import torch._inductor.compile_fx  # registers the templates
from torch._inductor import choices as inductor_choices
from torch._inductor import config as inductor_config
from torch._inductor.choices import InductorChoices
from torch._inductor.utils import fresh_cache

from diode.errors import DiodeError
from diode.integration import lowering
from diode.integration.device import current_environment, current_hardware
from diode.integration.feedback import autotuning_observed
from diode.integration.installation import HOOKS, REGISTRY, probe
from diode.types import MMShape
from diode.types.known_hardware import H200


def registration() -> str:
    """The interface that diode takes."""
    try:
        return probe()
    except DiodeError as error:
        return f"none: {error}"


def hook() -> str:
    return next((name for name in HOOKS if hasattr(InductorChoices, name)), "none")


class _TellingChoices(InductorChoices):
    def __init__(self, asked: list[str]) -> None:
        super().__init__()
        self._asked = asked

    def uuid(self) -> str:
        self._asked.append("uuid()")
        return "telling"


class _TellingFactory:
    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def __call__(self) -> InductorChoices:
        return _TellingChoices(self._asked)

    def __deepcopy__(self, memo: dict[int, Any]) -> _TellingFactory:
        return self  # torch copies the values of its configuration

    def __reduce__(self) -> tuple[Any, ...]:
        self._asked.append("the pickled factory")
        return dict, ()


def cache_key() -> str:
    """What of a registered factory goes into the key under which torch keeps compiled graphs."""
    asked: list[str] = []
    factory = _TellingFactory(asked)
    a, b = torch.randn(2, 16, 24), torch.randn(2, 24, 8)
    with contextlib.ExitStack() as stack:
        stack.enter_context(fresh_cache())
        if hasattr(inductor_choices, REGISTRY):
            vars(inductor_choices)[REGISTRY]("telling", factory)
            stack.callback(vars(inductor_choices)[f"un{REGISTRY}"], "telling")
        else:
            stack.enter_context(inductor_config.patch(inductor_choices_class=factory))
        torch.compiler.reset()
        torch.compile(torch.bmm)(a, b)
    return ", ".join(dict.fromkeys(asked)) or "nothing"


class _Counter(lowering._Recorder):
    calls = 0

    def _finalize_template_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
        type(self).calls += 1
        return super()._finalize_template_configs(*args, **kwargs)


def addmm_hook_calls() -> int:
    """How often Inductor calls its hook for one addmm on a GPU."""
    original = lowering._Recorder
    lowering._Recorder = _Counter  # type: ignore[misc]
    try:
        with lowering.lowered(MMShape.of("addmm", 512, 512, 512), "DEFAULT", H200):
            return _Counter.calls
    finally:
        lowering._Recorder = original  # type: ignore[misc]


def twin_mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return torch.mm(a, b, out=out)


def feedback_arguments() -> int:
    """How many arguments a feedback saver is given after an autotuning."""
    counts: list[int] = []
    settings = {"max_autotune": True, "autotune_num_choices_displayed": 0, "external_matmul": [twin_mm]}
    observed = autotuning_observed(lambda *arguments: counts.append(len(arguments)), lambda choices: choices)
    with fresh_cache(), inductor_config.patch(settings), torch.no_grad(), observed:
        torch.compiler.reset()
        torch.compile(torch.mm)(torch.randn(64, 32), torch.randn(32, 48))
    return counts[0]


def main() -> int:
    environment = msgspec.to_builtins(current_environment(current_hardware("cpu")))
    interfaces = {
        "hook": hook(),
        "registration": registration(),
        "cache_key": cache_key(),
        "addmm_hook_calls": addmm_hook_calls(),
        "feedback_arguments": feedback_arguments(),
    }
    software = {name: environment[name] for name in ("torch", "triton", "python", "diode", "commit", "taken")}
    print(json.dumps({"interfaces": interfaces, "software": software}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
