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

__all__ = [
    "BATCHED_OPS",
    "BIASED_OPS",
    "AtenChoice",
    "Choice",
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
    "Scalar",
    "SearchSpace",
    "TensorSpec",
    "TiledConfig",
    "Timing",
    "TimingMethod",
    "TritonGEMMConfig",
]
