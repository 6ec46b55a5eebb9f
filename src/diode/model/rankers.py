"""Ways to order choices: a model's, and those that a model has to beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.features import feature_matrix
from diode.model.evaluation import Order, Ranker
from diode.model.prediction import TimingModel
from diode.model.truth import MeasuredProblem, Truth
from diode.types import AtenChoice, Choice, DecomposeKConfig, MMShape, PersistentTMAConfig, TritonGEMMConfig

Tile = tuple[object, ...]
_UNSEEN: Final = 1.0
"""Log regret that a table believes of what it never saw measured."""


def model_ranker(model: TimingModel) -> Ranker:
    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        table = truth.table.take(measured.choice_ids)
        return model.predict_choices(feature_matrix(measured.hardware, measured.problem, table)).order()

    return rank


def random_ranker(seed: int) -> Ranker:
    draw = np.random.default_rng(seed)

    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        return draw.permutation(len(measured.choice_ids))

    return rank


def library_ranker(truth: Truth, measured: MeasuredProblem) -> Order:
    """The library's kernels and nothing else, first the one that a compile without autotuning runs."""
    places = np.flatnonzero([isinstance(choice, AtenChoice) for choice in truth.choices_of(measured)])
    if has_vector_bias(measured.problem):
        # It is handed to the library as it is; only an autotuned compile may expand it to a matrix first.
        expands = [truth.choices[measured.choice_ids[place]] != AtenChoice("bias_addmm") for place in places]
        places = places[np.argsort(expands, kind="stable")]
    return places


def has_vector_bias(problem: MMShape) -> bool:
    return problem.bias is not None and problem.bias.strides[-2] == 0


def listed_ranker(listed: Callable[[MeasuredProblem], Sequence[Choice]]) -> Ranker:
    """Choices in the order of a list that is made for each problem, such as Inductor's DEFAULT."""

    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        places = {_tile(truth.choices[number]): place for place, number in enumerate(measured.choice_ids)}
        found = [places[tile] for tile in map(_tile, listed(measured)) if tile in places]
        return np.array(list(dict.fromkeys(found)), dtype=np.intp)

    return rank


def static_table_ranker(training: Truth, size: int = 50) -> Ranker:
    """One list for each width of element, chosen on training problems: each entry helps most beside those before it."""
    tables = {
        width: _static_table([m for m in training.problems if _width(m.problem) == width], training, size)
        for width in {_width(measured.problem) for measured in training.problems}
    }

    def listed(truth: Truth, measured: MeasuredProblem) -> Order:
        places: dict[Tile, int] = {}
        for place, number in enumerate(measured.choice_ids):
            places.setdefault(_tile(truth.choices[number]), place)
        table = tables.get(_width(measured.problem)) or next(iter(tables.values()))
        return np.array([places[tile] for tile in table if tile in places], dtype=np.intp)

    return listed


def _static_table(problems: list[MeasuredProblem], truth: Truth, size: int) -> list[Tile]:
    numbers: dict[Tile, int] = {}
    tile_of = [numbers.setdefault(_tile(choice), len(numbers)) for choice in truth.choices]
    regret = np.full((len(problems), len(numbers)), np.nan)
    for row, measured in enumerate(problems):
        # A failure costs as much as the slowest: a table cannot know better.
        times = np.where(measured.failed, np.nanmax(measured.time_us), measured.time_us)
        regret[row, [tile_of[number] for number in measured.choice_ids]] = np.log(times / measured.oracle_us)
    seen = (~np.isnan(regret)).sum(0)
    # What was measured on few problems is believed to be as bad as the unseen until it has shown otherwise.
    typical = (np.nansum(regret, 0) + 3 * _UNSEEN) / (seen + 3)
    filled = np.where(np.isnan(regret), typical, regret)
    return _greedy(filled, list(numbers), size)


def _greedy(regret: NDArray[np.float64], tiles: list[Tile], size: int) -> list[Tile]:
    best = np.full(len(regret), np.inf)
    taken = np.zeros(len(tiles), dtype=np.bool_)
    table: list[Tile] = []
    for _ in range(min(size, len(tiles))):
        together = np.minimum(best[:, None], regret).mean(0)
        picked = int(np.where(taken, np.inf, together).argmin())
        table.append(tiles[picked])
        best = np.minimum(best, regret[:, picked])
        taken[picked] = True
    return table


def _width(problem: MMShape) -> str:
    if problem.a.dtype == "float32":
        return "tf32" if problem.allow_tf32 else "float32"
    return "16-bit"


def _tile(choice: Choice) -> Tile:
    """What of a choice does not follow from the problem."""
    if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig):
        blocks = (choice.block_m, choice.block_n, choice.block_k)
        return (type(choice), *blocks, choice.num_stages, choice.num_warps, choice.group_m)
    if isinstance(choice, AtenChoice):
        # `mm`, `addmm`, `bmm` are one library; its route for a vector bias is another.
        return (AtenChoice, choice.kernel == "bias_addmm")
    if isinstance(choice, DecomposeKConfig):
        return (DecomposeKConfig, choice.k_split)
    return (choice,)
