"""Inductor's choices handler that lets a model decide which choices of a GEMM are left to benchmark."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch._inductor.choices import InductorChoices

import diode
from diode.errors import SelectionError
from diode.integration.candidates import HookCall, freeze_inputs, has_tiled_template
from diode.integration.coverage import leaves_choosing_to_us
from diode.integration.decision import Decision, note
from diode.integration.fallback import failing_as, say_once
from diode.integration.learned import LearnedHere
from diode.integration.model_source import ModelSource
from diode.integration.operation import Operation, ensure_taking_back
from diode.integration.policy import Policy, TopK
from diode.integration.selection import Selector
from diode.integration.statistics import Statistics
from diode.integration.surroundings import device_name
from diode.settings import OnMismatch


class _Replay:
    """A generator of Inductor's that can be read again: by us, then by whoever decides if we cannot."""

    def __init__(self, generated: Iterable[Any]) -> None:
        self._source = iter(generated)
        self._read: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        yield from self._read
        for item in self._source:
            self._read.append(item)
            yield item


class DiodeInductorChoices(InductorChoices):
    """Hands on the choices of each GEMM that the model expects to be fastest; of all else, what Inductor would.

    `learn` is a store of what was measured on this machine: it is read once, when the handler is first asked.
    `wrapped` is the handler that was there before. It still answers for all that diode leaves alone, and where it
    overrides the hook for GEMMs itself, it has the last word on what the model left.
    """

    def __init__(
        self,
        model_path: str | Path | None = None,
        device: str = "cpu",
        top_k_configs: TopK = 3,
        enable_fallback: bool = True,
        performance_threshold: float = 1.1,
        *,
        on_mismatch: OnMismatch | None = None,
        learn: str | Path | None = None,
        wrapped: InductorChoices | None = None,
    ) -> None:
        super().__init__()
        self.policy = Policy(top_k_configs, performance_threshold)
        self.enable_fallback = enable_fallback
        self.source = ModelSource(model_path, device, on_mismatch)
        self.statistics = Statistics()
        self._learned = LearnedHere(learn)
        self.wrapped = wrapped
        self._selector = Selector(self.source, self._learned)
        self._thread = threading.local()
        if wrapped is not None:
            self._delegate_to(wrapped)

    def uuid(self) -> str:
        """Part of the key of torch's caches: another model, policy, device, diode or store makes other kernels."""
        return "-".join(filter(None, (self.identity, self._learned.digest)))

    @property
    def identity(self) -> str:
        """The beginning of the uuid: all but what was learned, which another process may have read later."""
        wrapped = getattr(self.wrapped, "uuid", None)
        told = (
            diode.__version__,
            self.source.digest,
            str(self.policy),
            repr(self.policy.regret_bound),
            device_name(),
            repr(wrapped()) if wrapped is not None else type(self.wrapped).__qualname__,
        )
        return "diode-" + hashlib.sha256("\n".join(told).encode()).hexdigest()

    def get_stats(self) -> dict[str, int | float]:
        """The counts that `diode.integration.statistics.MEANINGS` explains, and how long decisions took, in seconds."""
        return self.statistics.report()

    def get_template_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
        before = getattr(self._thread, "left", None)
        self._thread.left = None
        try:
            callers: list[Any] = super().get_template_configs(*args, **kwargs)
            if callers or self._thread.left is None:
                return callers
            self._refused("Inductor made none of it")
        except SelectionError:
            raise
        except Exception as error:
            if self._thread.left is None:
                raise
            self._refused(f"{type(error).__name__}: {error}")
        finally:
            self._thread.left = before
        with self._standing_aside():
            return list(super().get_template_configs(*args, **kwargs))

    def _refused(self, why: str) -> None:
        """Chosen, but the template refused it when it was asked for code."""
        decision, operation = self._thread.left
        if operation is not None:
            operation.give_up()
        message = f"{decision.problem}: what was chosen has no kernel ({why}); report it with this message"
        self.statistics.withdraw(decision)
        self._fall_back(SelectionError("fallback_empty_result", message), decision)

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: Any,
        templates: Any,
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        aside = getattr(self._thread, "aside", False)
        if not aside:
            self.statistics.add("total_calls")
        overrides = kwarg_overrides or {}
        replays: dict[str, Iterable[Any]] = {uid: _Replay(generated) for uid, generated in template_choices.items()}
        call = HookCall(replays, kernel_inputs, templates, op_name, overrides)
        selected = None if aside or _is_no_choice(call) else self._guarded(call)
        if selected is None:
            return self._inductor_s(call, replays)
        if not _overrides_hook(self.wrapped):
            return selected
        by_uid: dict[str, list[Any]] = {}
        for ktc in selected:
            by_uid.setdefault(ktc.template.uid, []).append(ktc)
        return self._inductor_s(call, by_uid)

    @contextmanager
    def _standing_aside(self) -> Iterator[None]:
        self._thread.aside = True
        try:
            yield
        finally:
            self._thread.aside = False

    def _inductor_s(self, call: HookCall, choices: dict[str, Any]) -> list[Any]:
        generators: Any = {uid: iter(generated) for uid, generated in choices.items()}
        rest = (call.kernel_inputs, call.templates, call.op_name, call.overrides)
        if self.wrapped is not None:
            return list(self.wrapped._finalize_template_configs(generators, *rest))  # type: ignore[arg-type]
        return list(super()._finalize_template_configs(generators, *rest))  # type: ignore[arg-type]

    def _guarded(self, call: HookCall) -> list[Any] | None:
        """What the model leaves of a call, or None for what Inductor would do."""
        try:
            with _anything_wrong(call):
                return self._answer(call)
        except SelectionError as error:
            self._fall_back(error, self._undecided(call))
            return None

    def _answer(self, call: HookCall) -> list[Any] | None:
        operation: Operation | None = getattr(self._thread, "operation", None)
        if operation is not None and not operation.belongs(call):
            operation = None
        if call.op_name == "addmm" and not has_tiled_template(call.templates):
            if operation is None:
                operation = Operation(call, self._settle, self._not_taken_back)
                self._thread.operation = operation
                ensure_taking_back()
            return operation.offer(call)
        self._thread.operation = None
        if operation is not None:
            operation.settled = True  # whatever comes of it: the GEMM is decided once
        earlier = operation.spaces if operation is not None else []
        selection, spaces = self._selector.select(call, self.policy, earlier)
        if selection is None:
            return None
        if not selection.has_library:
            freeze_inputs(call.kernel_inputs)
        answered: list[Any] = []
        kept: list[Any] = []
        for number, place in selection.places:
            (kept if number < len(earlier) else answered).extend(spaces[number].generate([place]))
        if operation is not None:
            operation.keep(kept, selection.decision)
        if answered:
            self._thread.left = (selection.decision, operation)
        self._selected(selection.decision)
        return answered

    def _settle(self, operation: Operation) -> None:
        """Decides for a GEMM that no template came for."""
        self._thread.operation = None
        call = operation.call
        try:
            with _anything_wrong(call):
                selection, spaces = self._selector.select(call, self.policy, operation.spaces, templates_to_come=False)
                if selection is None:
                    return
                kept = [ktc for number, place in selection.places for ktc in spaces[number].generate([place])]
        except SelectionError as error:
            self._fall_back(error, self._undecided(call))
            return
        operation.keep(kept, selection.decision)
        self._selected(selection.decision)

    def _not_taken_back(self, operation: Operation, error: Exception) -> None:
        """Decided, but what was left out could not be told from what was kept."""
        if operation.decision is not None:
            self.statistics.withdraw(operation.decision)
        try:
            with _anything_wrong(operation.call):
                raise error
        except SelectionError as told:
            self._fall_back(told, operation.decision or self._undecided(operation.call))

    def _selected(self, decision: Decision) -> None:
        note(decision)
        self.statistics.selected(decision)

    def _fall_back(self, error: SelectionError, decision: Decision) -> None:
        if not self.enable_fallback:
            raise error
        note(replace(decision, fallback=error.reason, why=str(error)))
        self.statistics.fell_back(error.reason)
        say_once(error.reason, f"torch.compile takes Inductor's own choices ({error.reason}): {error}")

    def _undecided(self, call: HookCall) -> Decision:
        return Decision(*_names(call), str(self.policy))

    def _delegate_to(self, wrapped: InductorChoices) -> None:
        """Whatever else the wrapped handler overrides is still asked of it."""
        for name in dir(InductorChoices):
            if name.startswith("__") or name in vars(DiodeInductorChoices):
                continue
            if getattr(type(wrapped), name, None) is not getattr(InductorChoices, name):
                setattr(self, name, getattr(wrapped, name))


def _is_no_choice(call: HookCall) -> bool:
    if not leaves_choosing_to_us(call.op_name):
        return True
    # One library kernel alone is no choice, unless more of the same GEMM is to come.
    return len(call.templates) == 1 and not has_tiled_template(call.templates) and call.op_name != "addmm"


def _overrides_hook(wrapped: InductorChoices | None) -> bool:
    hook = "_finalize_template_configs"
    return wrapped is not None and getattr(type(wrapped), hook) is not getattr(InductorChoices, hook)


def _anything_wrong(call: HookCall) -> AbstractContextManager[None]:
    return failing_as("fallback_error", f"choosing for {call.op_name}", "report it with this message")


def _names(call: HookCall) -> tuple[str, str]:
    """Problem and device as a message names them, as far as they can be told."""
    problem, device = call.op_name, ""
    try:
        device = str(call.kernel_inputs.device())
        problem += f" {'x'.join(str(int(size)) for size in call.kernel_inputs.mnk_hinted())}"
    except Exception:  # noqa: BLE001  # for a message only
        return problem, device
    return problem, device
