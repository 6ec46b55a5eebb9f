"""What a model says of a GEMM's candidates, for one size or a range of them. Pure: no Inductor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.errors import SelectionError
from diode.features import ChoiceTable, feature_matrix
from diode.features.table import LIBRARY, PERSISTENT, TILED
from diode.integration.fallback import failing_as
from diode.integration.policy import Ranked
from diode.learning.memory import NOTHING_KNOWN, Knowledge
from diode.model.prediction import Prediction
from diode.model.wrapper import ModelWrapper
from diode.types import Hardware, MMShape
from diode.types.dtypes import item_bytes

_MARGIN_BYTES: Final = 2048
"""Shared memory that is left to what Inductor may fuse into a kernel that nobody has run before."""
_SAFE_FAILURE: Final = 0.1


def rank(
    model: ModelWrapper,
    hardware: Hardware,
    sizes: Sequence[MMShape],
    table: ChoiceTable,
    library_saving: float = 0.0,
    knowledge: Knowledge = NOTHING_KNOWN,
) -> Ranked:
    """`sizes` are those that the kernel must serve, the first one the hint.

    `library_saving` is what a library kernel costs beyond its own time, as a share of the least time of the problem.
    """
    predictions = [
        knowledge.corrected(hardware, problem, table, _predict(model, hardware, problem, table)) for problem in sizes
    ]
    prediction = predictions[0] if len(predictions) == 1 else _over_sizes(predictions)
    library = table.kind == LIBRARY
    if library_saving:
        log_ratio = prediction.log_ratio.copy()
        log_ratio[library] = np.log(np.exp(log_ratio[library]) + np.float32(library_saving))
        prediction = Prediction(log_ratio, prediction.sigma, prediction.failure)
    least, most = _shared_bytes(table, sizes)
    limit = float(hardware.shared_memory_per_block or np.inf)
    tiled = (table.kind == TILED) | (table.kind == PERSISTENT)
    safe = ~tiled | ((most + _MARGIN_BYTES <= limit) & (prediction.failure <= _SAFE_FAILURE))
    legal = ~tiled | (least <= limit)
    if not sizes[0].flops:
        legal = library  # nobody has timed a kernel on nothing; a library knows what to do about it
    return Ranked(prediction, library, legal, safe, _kinds(table))


def _predict(model: ModelWrapper, hardware: Hardware, problem: MMShape, table: ChoiceTable) -> Prediction:
    with failing_as("fallback_feature_extraction", f"putting {problem} into numbers", "report it with this message"):
        with np.errstate(all="ignore"):
            features = feature_matrix(hardware, problem, table)
        if not np.isfinite(features).all():
            raise SelectionError(
                "fallback_feature_extraction",
                f"{problem} on {hardware.name}: its features are no finite numbers; the device's record may be wrong",
            )
    remedy = "train the model again, or remove it"
    with failing_as("fallback_prediction", f"predicting with {model.path}", remedy):
        with np.errstate(all="ignore"):
            prediction = model.model.predict(features)
        if not all(np.isfinite(values).all() for values in vars(prediction).values()):
            raise SelectionError("fallback_prediction", f"{model.path} predicts no numbers: {remedy}")
    return prediction


def _over_sizes(predictions: Sequence[Prediction]) -> Prediction:
    """The expected regret over the sizes, the first of which counts twice, in the place of the ratio.

    At each size a choice costs what it is slower there than the best one; the mean of that is what is to be small.
    """
    regrets = np.stack([np.exp(p.log_ratio - p.log_ratio.min()) for p in predictions])
    weights = np.ones(len(predictions))
    weights[0] = 2.0
    mean = np.average(regrets, axis=0, weights=weights)
    sigma = np.stack([prediction.sigma for prediction in predictions]).mean(axis=0)
    failure = np.stack([prediction.failure for prediction in predictions]).max(axis=0)
    log_ratio = np.log(mean) + predictions[0].log_ratio.min()
    return Prediction(log_ratio.astype(np.float32), sigma, failure)


def _shared_bytes(table: ChoiceTable, sizes: Sequence[MMShape]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least shared memory that a tile takes, one stage staying in registers, and the most."""
    stage = (table.block_m + table.block_n) * table.block_k * item_bytes(sizes[0].a.dtype)
    # A loop that is known to have one step is not pipelined.
    K = sizes[0].K if len({problem.K for problem in sizes}) == 1 else np.inf
    stages = np.where(table.block_k >= K, 1.0, np.maximum(table.stages, 1))
    in_registers = (stages > 1) & (table.kind != PERSISTENT)
    return stage * (stages - in_registers), stage * stages


def _kinds(table: ChoiceTable) -> NDArray[np.int64]:
    parts = (table.kind, table.block_m, table.block_n, table.block_k, table.k_split, table.adds_bias_itself)
    _, kinds = np.unique(np.stack([np.asarray(part, dtype=np.float64) for part in parts]), axis=1, return_inverse=True)
    return kinds.reshape(-1).astype(np.int64)
