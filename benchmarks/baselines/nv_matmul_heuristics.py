"""NVIDIA's analytical heuristics for GEMM configs, asked for Triton on the GPU that was measured; no GPU is needed.

The package is proprietary: it is asked here to compare with, and never shipped. Its discovery data are loaded and its
performance model orders what it finds, which is what its makers recommend where several configs are tried.

It describes a kernel by tiles of a block and of a warp, stages, and a split of K, from a larger space than was measured
(eight stages, say). Each of its configs stands for one choice that was measured:

1. one that splits K stands for Inductor's decompose-k with the same split, where that was measured;
2. any other stands for the nearest choice of the plain Triton template: distances are in powers of two of the blocks
   and of the number of warps (block tile over warp tile), those of BLOCK_M and BLOCK_N counting twice, and half of one
   for each stage; between equals the one that was listed first;
3. a choice that an earlier config stands for is not listed again.

It has no word for library kernels: `after_library` puts those in front, which makes a stronger baseline of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from diode.errors import MissingDependencyError, UnsupportedError
from diode.features import ChoiceTable
from diode.features.table import DECOMPOSED, TILED
from diode.model.evaluation import Order, Ranker
from diode.model.rankers import library_ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.types import Hardware, MMShape

_MOST_CONFIGS: Final = 64
_GPUS: Final = {"NVIDIA H200": "H200_SXM", "NVIDIA H100 80GB HBM3": "H100_SXM", "NVIDIA H100 PCIe": "H100_PCIE"}
_PRECISIONS: Final = {"bfloat16": "TST", "float16": "HSH", "float32": "SSS", "tf32": "SFS"}
"""Element type of the operands, of the sums, of the output, in the package's letters."""


def nv_matmul_heuristics_ranker() -> Ranker:
    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        table = truth.table.take(measured.choice_ids)
        return nearest_choices(table, proposed_configs(measured.hardware, measured.problem))

    return rank


def after_library(ranker: Ranker) -> Ranker:
    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        together = [*library_ranker(truth, measured), *ranker(truth, measured)]
        return np.array(list(dict.fromkeys(together)), dtype=np.intp)

    return rank


def proposed_configs(hardware: Hardware, problem: MMShape) -> list[Any]:
    """The package's own records, its favourite first."""
    heuristics = _heuristics(hardware.name)
    package = _package()
    layout = package.boolsToNvMatmulHeuristicsLayout(problem.layout[0] == "T", problem.layout[1] == "T")
    described = heuristics.makeNvMatmulHeuristicsProblem(problem.M, problem.N, problem.K, layout, problem.B)
    precision = _PRECISIONS["tf32" if problem.allow_tf32 else problem.a.dtype]
    return [found["kernel"] for found in heuristics.get(described, _MOST_CONFIGS, precision)]


def nearest_choices(table: ChoiceTable, configs: list[Any]) -> Order:
    """The rule above: places in the table, each once."""
    tiled = np.flatnonzero(table.kind == TILED)
    places: list[int] = []
    for config in configs:
        split = np.flatnonzero((table.kind == DECOMPOSED) & (table.k_split == config.split_k))
        if config.split_k > 1 and len(split):
            places.append(int(split[0]))
        elif len(tiled):
            places.append(int(tiled[_distances(table, tiled, config).argmin()]))
    return np.array(list(dict.fromkeys(places)), dtype=np.intp)


def _distances(table: ChoiceTable, rows: NDArray[np.intp], config: Any) -> NDArray[np.float64]:
    warps = (config.cta_tile_m * config.cta_tile_n) // (config.warp_tile_m * config.warp_tile_n)
    distances: NDArray[np.float64] = (
        2.0 * np.abs(np.log2(table.block_m[rows] / config.cta_tile_m))
        + 2.0 * np.abs(np.log2(table.block_n[rows] / config.cta_tile_n))
        + np.abs(np.log2(table.block_k[rows] / config.cta_tile_k))
        + np.abs(np.log2(table.warps[rows] / max(warps, 1)))
        + 0.5 * np.abs(table.stages[rows] - config.stages)
    )
    return distances


@cache
def _heuristics(gpu: str) -> Any:
    package = _package()
    if gpu not in _GPUS:
        raise UnsupportedError(f"nvMatmulHeuristics is asked here for {', '.join(_GPUS)} only, not for {gpu}")
    return package.NvMatmulHeuristicsInterfaceEx(
        backend=package.NvMatmulHeuristicsTarget.TRITON,
        flags=package.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=package.NvMatmulHeuristicsNvidiaGpu[_GPUS[gpu]],
    )


def _package() -> Any:
    try:
        import nvMatmulHeuristics
    except ImportError as error:
        raise MissingDependencyError("nvMatmulHeuristics", "this baseline", "baselines") from error
    return nvMatmulHeuristics
