"""What things are: problems, choices, measurements, hardware, datasets."""

from diode.types.choice import (
    AtenChoice,
    Choice,
    CppTemplateConfig,
    DecomposeKConfig,
    OtherChoice,
    PersistentTMAConfig,
    Scalar,
    SearchSpace,
    TiledConfig,
    TritonGEMMConfig,
)
from diode.types.dataset import Columns, Dataset, DatasetBuilder
from diode.types.hardware import Hardware
from diode.types.measurement import (
    Environment,
    Failure,
    FailureReason,
    Measurement,
    Timing,
    TimingMethod,
)
from diode.types.problem import BATCHED_OPS, BIASED_OPS, Layout, MMShape, Operand, OtherProblem, Problem, TensorSpec
from diode.types.solution import ChoicePattern, ProblemPattern, Solution, SolutionEntry

__all__ = [
    "BATCHED_OPS",
    "BIASED_OPS",
    "AtenChoice",
    "Choice",
    "ChoicePattern",
    "Columns",
    "CppTemplateConfig",
    "Dataset",
    "DatasetBuilder",
    "DecomposeKConfig",
    "Environment",
    "Failure",
    "FailureReason",
    "Hardware",
    "Layout",
    "MMShape",
    "Measurement",
    "Operand",
    "OtherChoice",
    "OtherProblem",
    "PersistentTMAConfig",
    "Problem",
    "ProblemPattern",
    "Scalar",
    "SearchSpace",
    "Solution",
    "SolutionEntry",
    "TensorSpec",
    "TiledConfig",
    "Timing",
    "TimingMethod",
    "TritonGEMMConfig",
]
