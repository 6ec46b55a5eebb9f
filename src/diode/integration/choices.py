"""Inductor's choices handler that lets a model decide which choices of a GEMM are left to benchmark."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch._inductor.choices import InductorChoices

import diode
from diode.errors import SelectionError
from diode.features import least_us
from diode.integration.candidates import (
    HookCall,
    Prepared,
    Space,
    freeze_inputs,
    has_tiled_template,
    is_rankable,
    joined,
    spaces_of,
)
from diode.integration.conversion import choice_from_ktc, problem_from_inputs
from diode.integration.coverage import check_covers, leaves_choosing_to_us
from diode.integration.decision import Decision, Pick, Remembered, as_remembered, note
from diode.integration.fallback import failing_as, say_once
from diode.integration.fusion import fusion_saving
from diode.integration.learned import LearnedHere, known_first
from diode.integration.model_source import ModelSource, as_trained
from diode.integration.operation import Operation, ensure_taking_back
from diode.integration.policy import Policy, TopK, choose
from diode.integration.ranking import rank
from diode.integration.sizes import sizes_to_serve
from diode.integration.statistics import Statistics
from diode.integration.surroundings import device_name, hardware_of, software
from diode.model.wrapper import ModelWrapper
from diode.settings import OnMismatch
from diode.types import Choice, Hardware, MMShape


@dataclass(frozen=True, eq=False)
class _Selection:
    """A decision as places: of a space, and within it."""

    places: tuple[tuple[int, int], ...]
    has_library: bool
    decision: Decision


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
        self._prepared: Remembered[Prepared] = Remembered(512)
        self._selections: Remembered[_Selection] = Remembered()
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
            operation.kept = None
        message = f"{decision.problem}: what was chosen has no kernel ({why}); report it with this message"
        if not self.enable_fallback:
            raise SelectionError("fallback_empty_result", message)
        note(replace(decision, fallback="fallback_empty_result", why=message))
        self._count_fallback("fallback_empty_result", message)

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
            with failing_as("fallback_error", f"choosing for {call.op_name}", "report it with this message"):
                return self._answer(call)
        except SelectionError as error:
            self._fall_back(error, call)
            return None

    def _answer(self, call: HookCall) -> list[Any] | None:
        operation: Operation | None = getattr(self._thread, "operation", None)
        if operation is not None and not operation.belongs(call):
            operation = None
        if call.op_name == "addmm" and not has_tiled_template(call.templates):
            if operation is None:
                operation = Operation(call, self._settle)
                self._thread.operation = operation
                ensure_taking_back()
            return operation.offer(call)
        self._thread.operation = None
        try:
            selection, spaces = self._select(call, operation)
        except SelectionError:
            if operation is not None:
                operation.settled = True
            raise
        if selection is None:
            return None
        if not selection.has_library:
            freeze_inputs(call.kernel_inputs)
        earlier = operation.spaces if operation is not None else []
        answered: list[Any] = []
        kept: list[Any] = []
        for number, place in selection.places:
            (kept if number < len(earlier) else answered).extend(spaces[number].generate([place]))
        if operation is not None:
            operation.keep(kept)
        if answered:
            self._thread.left = (selection.decision, operation)
        return answered

    def _settle(self, operation: Operation) -> None:
        """Decides for a GEMM that no template came for."""
        self._thread.operation = None
        try:
            with failing_as("fallback_error", f"choosing for {operation.call.op_name}", "report it with this message"):
                selection, spaces = self._select(operation.call, operation, templates_to_come=False)
        except SelectionError as error:
            self._fall_back(error, operation.call)
            return
        if selection is not None:
            operation.keep([ktc for number, place in selection.places for ktc in spaces[number].generate([place])])

    def _select(
        self, call: HookCall, operation: Operation | None, templates_to_come: bool = True
    ) -> tuple[_Selection | None, Sequence[Space]]:
        started = time.perf_counter()
        earlier: Sequence[Space] = operation.spaces if operation is not None else ()
        with failing_as("fallback_feature_extraction", f"reading a {call.op_name}", "report it with this message"):
            problem = problem_from_inputs(call.op_name, call.kernel_inputs)
            if not isinstance(problem, MMShape):
                raise SelectionError("fallback_unsupported_op", f"{call.op_name}: diode has no model of this op")
            hardware = hardware_of(str(call.kernel_inputs.device()))
        own: Sequence[Space] = spaces_of(call, problem, self._prepared) if templates_to_come else ()
        spaces = [*earlier, *own]
        if sum(len(space.table) for space in spaces) <= 1:
            return None, spaces
        model = self.source.model_for(hardware, problem.op, software())
        check_covers(model.card, problem, spaces)
        selection = self._remembered_or_new(call, problem, as_trained(hardware, model.card), model, spaces, started)
        note(selection.decision)
        self.statistics.add("decisions")
        self.statistics.add("model_selections")
        self.statistics.add("configs_filtered", selection.decision.candidates - len(selection.places))
        self.statistics.add("store_answers", selection.decision.measured_us is not None)
        self.statistics.add("store_corrections", selection.decision.corrected_by > 0)
        self.statistics.decided(selection.decision.seconds)
        return selection, spaces

    def _remembered_or_new(
        self,
        call: HookCall,
        problem: MMShape,
        hardware: Hardware,
        model: ModelWrapper,
        spaces: Sequence[Space],
        started: float,
    ) -> _Selection:
        with failing_as("fallback_feature_extraction", f"reading sizes of {problem}", "report it with this message"):
            sizes = sizes_to_serve(call.op_name, call.kernel_inputs, problem)
        saving = fusion_saving(hardware, problem) if self.policy.top_k == 1 else 0.0
        rankable = [number for number, space in enumerate(spaces) if is_rankable(space, model.card.templates)]
        signature = tuple(spaces[number].signature for number in rankable)
        key = (sizes, saving, self.policy, model.digest, hardware, signature)
        found = self._selections.get(key)
        if found is None:
            found = self._new_selection(hardware, model, spaces, rankable, sizes, saving, started)
            self._selections.put(key, found)
            return found
        remembered = as_remembered(found.decision, time.perf_counter() - started)
        return _Selection(found.places, found.has_library, remembered)

    def _new_selection(
        self,
        hardware: Hardware,
        model: ModelWrapper,
        spaces: Sequence[Space],
        rankable: Sequence[int],
        sizes: tuple[MMShape, ...],
        saving: float,
        started: float,
    ) -> _Selection:
        owners = [(number, place) for number in rankable for place in range(len(spaces[number].table))]

        def choice_at(candidate: int) -> Choice:
            space, place = owners[candidate]
            (ktc,) = spaces[space].generate([place])
            return choice_from_ktc(ktc)

        table = joined([spaces[number].table for number in rankable])
        knowledge = self._learned.knowledge(hardware, model)
        ranked = rank(model, hardware, sizes, table, saving, knowledge)
        known = known_first(knowledge, hardware, sizes, table, ranked, saving, choice_at)
        picked = choose(ranked, self.policy, None if known is None else known[0])
        if not picked:
            raise SelectionError(
                "fallback_empty_result",
                f"{sizes[0]}: none of {len(owners)} candidates fits {hardware.name}; "
                "add ATEN to max_autotune_gemm_backends",
            )
        places = tuple(owners[number] for number in picked)
        times = ranked.prediction.time_us(least_us(hardware, sizes[0]))
        sigma = ranked.prediction.sigma
        answer = known[1] if known is not None and picked[0] == known[0] else None
        decision = Decision(
            problem=str(sizes[0]),
            device=hardware.name,
            policy=str(self.policy),
            model=str(model.card),
            candidates=len(owners),
            sizes=sizes,
            picks=tuple(Pick(choice_at(number), float(times[number]), float(sigma[number])) for number in picked),
            measured_us=None if answer is None else answer.time_us,
            compared=0 if answer is None else answer.compared,
            corrected_by=0 if knowledge.correction is None else knowledge.correction.problems,
            seconds=time.perf_counter() - started,
        )
        return _Selection(places, bool(ranked.library[picked].any()), decision)

    def _fall_back(self, error: SelectionError, call: HookCall) -> None:
        self.statistics.add("decisions")
        if not self.enable_fallback:
            raise error
        problem = f"{call.op_name} {'x'.join(map(str, _hinted_sizes(call)))}"
        device = str(call.kernel_inputs.device())
        note(Decision(problem, device, str(self.policy), fallback=error.reason, why=str(error)))
        self._count_fallback(error.reason, str(error))

    def _count_fallback(self, reason: str, message: str) -> None:
        self.statistics.add(reason)
        say_once(reason, f"torch.compile takes Inductor's own choices ({reason}): {message}")

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


def _hinted_sizes(call: HookCall) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in call.kernel_inputs.mnk_hinted())
    except Exception:  # noqa: BLE001  # for a message only
        return ()
