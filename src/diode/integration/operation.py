"""The calls of Inductor's hook that belong to one GEMM.

For an addmm, torch 2.13 asks for the library kernels, for a contiguous variant, and for the templates, one after the
other. The first calls are answered with all that there is; what the decision leaves out of that is taken back before
autotuning looks at the choices, by a preprocessing function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from torch._inductor.select_algorithm import get_algorithm_selector_cache

from diode.errors import SelectionError
from diode.integration.candidates import HookCall, ListedSpace
from diode.integration.decision import Decision

_OPERATION: Final = "diode.operation"


@dataclass(eq=False)
class Operation:
    """A GEMM of which not all calls were answered yet."""

    call: HookCall
    settle: Callable[[Operation], None]
    """Decides among what was offered, if nothing else was offered until autotuning."""
    not_taken_back: Callable[[Operation, Exception], None]
    """Is told where what was left out stays, because of an error."""
    spaces: list[ListedSpace] = field(default_factory=list)
    offered: list[Any] = field(default_factory=list)
    kept: set[int] | None = None
    """Of `offered`, by identity; None before there is a decision, or where it is Inductor's."""
    decision: Decision | None = None
    settled: bool = False

    def belongs(self, call: HookCall) -> bool:
        """By identity of the matrices: the bias is another object in each call."""
        mine, theirs = self.call.kernel_inputs.nodes()[-2:], call.kernel_inputs.nodes()[-2:]
        return (
            not self.settled
            and self.call.op_name == call.op_name
            and all(a is b for a, b in zip(mine, theirs, strict=True))
        )

    def offer(self, call: HookCall) -> list[Any]:
        answered: list[Any] = []
        for uid, generated in call.template_choices.items():
            space = ListedSpace(uid, generated)
            self.spaces.append(space)
            answered += space.generate(range(len(space.table)))
        for ktc in answered:
            ktc.annotations[_OPERATION] = self
        self.offered += answered
        return answered

    def keep(self, kept: list[Any], decision: Decision) -> None:
        self.kept = {id(ktc) for ktc in kept}
        self.decision = decision
        self.settled = True

    def give_up(self) -> None:
        """All that was offered stays."""
        self.kept = self.decision = None
        self.settled = True


def take_back(choices: list[Any]) -> list[Any]:
    """Inductor's preprocessing function: without what a decision left out of an operation's earlier answers."""
    operations = {id(found): found for choice in choices if (found := _operation(choice)) is not None}
    try:
        for operation in operations.values():
            if not operation.settled:
                operation.settle(operation)
                operation.settled = True
        left = [choice for choice in choices if _is_kept(choice)]
    except SelectionError:
        raise  # falling back is forbidden
    except Exception as error:  # noqa: BLE001  # the boundary to a user's compile
        for operation in operations.values():
            if operation.kept is not None or not operation.settled:
                operation.not_taken_back(operation, error)
                operation.give_up()
        return choices
    # A template may turn out not to serve (64-bit indices, say) after it was chosen.
    return left or choices


def ensure_taking_back() -> None:
    """Anybody may clear Inductor's preprocessing functions; ours is looked for whenever it is needed."""
    selector = get_algorithm_selector_cache()
    if take_back not in selector.preprocessing_fns:
        selector.add_preprocessing_fn(take_back)


def stop_taking_back() -> None:
    selector = get_algorithm_selector_cache()
    selector.preprocessing_fns = [known for known in selector.preprocessing_fns if known is not take_back]


def _operation(choice: Any) -> Operation | None:
    annotations = getattr(choice, "annotations", None)
    found = annotations.get(_OPERATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, Operation) else None


def _is_kept(choice: Any) -> bool:
    operation = _operation(choice)
    return operation is None or operation.kept is None or id(choice.annotations["ktc"]) in operation.kept
