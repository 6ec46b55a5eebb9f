"""The columns of problems and choices, the same in every CSV file of diode."""

from __future__ import annotations

from typing import Final, get_args

from diode.storage.cells import RecordCells
from diode.types.choice import Choice
from diode.types.problem import MMShape, Operand, OtherProblem

GEMM: Final = RecordCells(
    MMShape,
    nested={
        "a": RecordCells(Operand, columns={"strides": "a_strides"}),
        **{
            role: RecordCells(Operand, columns={"dtype": f"{role}_dtype", "strides": f"{role}_strides"})
            for role in ("b", "out", "bias")
        },
    },
    derived={"layout": lambda problem: problem.layout},
)
OTHER_PROBLEM: Final = RecordCells(OtherProblem, columns={"out": "output"})

CHOICE_COLUMNS: Final = {"allow_tf32": "choice_allow_tf32", "name": "choice_name", "fields": "extra"}
"""Where a field of a choice cannot have its own name, which a problem has too, or says the same as another's."""

CHOICES: Final = {
    str(kind.__struct_config__.tag): RecordCells(kind, columns=CHOICE_COLUMNS) for kind in get_args(Choice)
}
