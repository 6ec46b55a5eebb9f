"""Which candidates of a GEMM are left: by a model, or as it was decided before for the same problem."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from diode.errors import SelectionError
from diode.features import ChoiceTable, least_us
from diode.integration.candidates import HookCall, Prepared, Space, is_rankable, spaces_of
from diode.integration.conversion import choice_from_ktc, problem_from_inputs
from diode.integration.coverage import check_covers
from diode.integration.decision import Decision, Pick, Remembered, as_remembered
from diode.integration.fallback import failing_as
from diode.integration.fusion import fusion_saving
from diode.integration.learned import LearnedHere, known_first
from diode.integration.model_source import ModelSource, as_trained
from diode.integration.policy import Policy, choose
from diode.integration.ranking import rank
from diode.integration.sizes import sizes_to_serve
from diode.integration.surroundings import hardware_of, software
from diode.model.wrapper import ModelWrapper
from diode.types import Choice, Hardware, MMShape


@dataclass(frozen=True, eq=False)
class Selection:
    """A decision as places: of a space, and within it."""

    places: tuple[tuple[int, int], ...]
    has_library: bool
    decision: Decision


class Selector:
    """Selects for one handler, and remembers what it selected."""

    def __init__(self, source: ModelSource, learned: LearnedHere) -> None:
        self._source = source
        self._learned = learned
        self._prepared: Remembered[Prepared] = Remembered(512)
        self._selections: Remembered[Selection] = Remembered()

    def select(
        self, call: HookCall, policy: Policy, earlier: Sequence[Space], templates_to_come: bool = True
    ) -> tuple[Selection | None, Sequence[Space]]:
        """Among the spaces of earlier calls and those of this one, if any are still to come.

        None where there is nothing to choose; a `SelectionError` says why it cannot be.
        """
        started = time.perf_counter()
        with failing_as("fallback_feature_extraction", f"reading a {call.op_name}", "report it with this message"):
            problem = problem_from_inputs(call.op_name, call.kernel_inputs)
            if not isinstance(problem, MMShape):
                raise SelectionError("fallback_unsupported_op", f"{call.op_name}: diode has no model of this op")
            hardware = hardware_of(str(call.kernel_inputs.device()))
        own: Sequence[Space] = spaces_of(call, problem, self._prepared) if templates_to_come else ()
        spaces = [*earlier, *own]
        if sum(len(space.table) for space in spaces) <= 1:
            return None, spaces
        model = self._source.model_for(hardware, problem.op, software())
        check_covers(model.card, problem, spaces)
        trained = as_trained(hardware, model.card)
        return self._remembered_or_new(call, policy, problem, trained, model, spaces, started), spaces

    def _remembered_or_new(
        self,
        call: HookCall,
        policy: Policy,
        problem: MMShape,
        hardware: Hardware,
        model: ModelWrapper,
        spaces: Sequence[Space],
        started: float,
    ) -> Selection:
        with failing_as("fallback_feature_extraction", f"reading sizes of {problem}", "report it with this message"):
            sizes = sizes_to_serve(call.op_name, call.kernel_inputs, problem)
        saving = fusion_saving(hardware, problem) if policy.top_k == 1 else 0.0
        rankable = [number for number, space in enumerate(spaces) if is_rankable(space, model.card.templates)]
        # Places are of the spaces by number, and there may be others among them.
        signature = tuple((number, spaces[number].signature) for number in rankable)
        key = (sizes, saving, policy, model.digest, hardware, signature)
        found = self._selections.get(key)
        if found is None:
            found = self._new_selection(policy, hardware, model, spaces, rankable, sizes, saving, started)
            self._selections.put(key, found)
            return found
        remembered = as_remembered(found.decision, time.perf_counter() - started)
        return Selection(found.places, found.has_library, remembered)

    def _new_selection(
        self,
        policy: Policy,
        hardware: Hardware,
        model: ModelWrapper,
        spaces: Sequence[Space],
        rankable: Sequence[int],
        sizes: tuple[MMShape, ...],
        saving: float,
        started: float,
    ) -> Selection:
        owners = [(number, place) for number in rankable for place in range(len(spaces[number].table))]

        def choice_at(candidate: int) -> Choice:
            space, place = owners[candidate]
            (ktc,) = spaces[space].generate([place])
            return choice_from_ktc(ktc)

        table = ChoiceTable.joined([spaces[number].table for number in rankable])
        knowledge = self._learned.knowledge(hardware, model)
        ranked = rank(model, hardware, sizes, table, saving, knowledge)
        known = known_first(knowledge, hardware, sizes, table, ranked, saving, choice_at)
        picked = choose(ranked, policy, None if known is None else known[0])
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
            policy=str(policy),
            model=str(model.card),
            candidates=len(owners),
            sizes=sizes,
            picks=tuple(Pick(choice_at(number), float(times[number]), float(sigma[number])) for number in picked),
            measured_us=None if answer is None else answer.time_us,
            compared=0 if answer is None else answer.compared,
            corrected_by=0 if knowledge.correction is None else knowledge.correction.problems,
            seconds=time.perf_counter() - started,
        )
        return Selection(places, bool(ranked.library[picked].any()), decision)
