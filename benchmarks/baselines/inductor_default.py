"""What max-autotune tries today, in Inductor's own order: the library's kernel first, then its list of configs.

The list is asked of Inductor for the GPU that was measured, so none is needed. Persistent TMA is left out: a user's
compile does not try it unless told to. Choices that were not measured are passed over, and so cost no place.

A bias that is a vector reaches the library in two ways. In torch 2.11 `addmm` expands it to a matrix and `bias_addmm`
hands it over as it is; torch 2.13 lists `addmm` alone, which hands it over. What is listed is named by what it does.
"""

from __future__ import annotations

from diode.integration.lowering import lowered
from diode.model.evaluation import Ranker
from diode.model.rankers import has_vector_bias, listed_ranker
from diode.model.truth import MeasuredProblem
from diode.types import AtenChoice, Choice, PersistentTMAConfig

_ADDMM, _BIAS_ADDMM = AtenChoice("addmm"), AtenChoice("bias_addmm")


def inductor_default_ranker() -> Ranker:
    return listed_ranker(default_choices)


def default_choices(measured: MeasuredProblem) -> list[Choice]:
    with lowered(measured.problem, "DEFAULT", measured.hardware) as candidates:
        listed = [entry.choice for entry in candidates if not isinstance(entry.choice, PersistentTMAConfig)]
    if has_vector_bias(measured.problem) and _BIAS_ADDMM not in listed:
        return [_BIAS_ADDMM if choice == _ADDMM else choice for choice in listed]
    return listed
