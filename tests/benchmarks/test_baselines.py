"""What a model has to beat: Inductor's list, NVIDIA's heuristics, the library, the public package's network."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tests.model.made_up import config, problem_of, truth_of

from baselines.inductor_default import default_choices, inductor_default_ranker
from baselines.nv_matmul_heuristics import after_library, nearest_choices, nv_matmul_heuristics_ranker
from baselines.public_architecture import train_public_architecture
from diode.errors import MissingDependencyError
from diode.features import ChoiceTable
from diode.model.evaluation import Ranker
from diode.model.rankers import library_ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.types import AtenChoice, Choice, DecomposeKConfig, MMShape, PersistentTMAConfig, TritonGEMMConfig

WIDE = TritonGEMMConfig("triton::mm", 128, 64, 32, 3, 4)
LIBRARY, VECTOR = AtenChoice("addmm"), AtenChoice("bias_addmm")
LINEAR = MMShape.of("addmm", 256, 1024, 512, layout="NT")
PERSISTENT = PersistentTMAConfig("triton::mm_persistent_tma", 128, 64, 32, 3, 4, True, True, 132)


def proposed(m: int, n: int, k: int, *, stages: int = 3, warp: tuple[int, int] = (64, 32), split: int = 1) -> object:
    """A config as nvMatmulHeuristics describes it."""
    names = ("cta_tile_m", "cta_tile_n", "cta_tile_k", "warp_tile_m", "warp_tile_n", "stages", "split_k")
    return SimpleNamespace(**dict(zip(names, (m, n, k, *warp, stages, split), strict=True)))


def nearest(choices: list[Choice], *configs: object) -> list[Choice]:
    return [choices[place] for place in nearest_choices(ChoiceTable.of(choices), list(configs))]


def order_of(ranker: Ranker, truth: Truth) -> list[Choice]:
    (measured,) = truth.problems
    choices = truth.choices_of(measured)
    return [choices[place] for place in ranker(truth, measured)]


def measured_of(problem: MMShape) -> MeasuredProblem:
    return truth_of({problem: {LIBRARY: 1.0}}).problems[0]


def test_a_proposal_stands_for_the_choice_that_is_the_same() -> None:
    choices: list[Choice] = [LIBRARY, config(64), PERSISTENT, WIDE]
    assert nearest(choices, proposed(128, 64, 32)) == [WIDE]


def test_a_proposal_that_was_not_measured_stands_for_the_nearest() -> None:
    """128x64 is one step from 128x128 in N, which counts twice; one in the warps, or two stages, count once."""
    same_tile = TritonGEMMConfig("triton::mm", 128, 64, 32, 3, 8)
    other_tile = TritonGEMMConfig("triton::mm", 128, 128, 32, 3, 4)
    assert nearest([other_tile, same_tile], proposed(128, 64, 32)) == [same_tile]
    deeper = TritonGEMMConfig("triton::mm", 128, 64, 64, 3, 4)
    assert nearest([same_tile, deeper], proposed(128, 64, 64)) == [deeper]
    assert nearest([same_tile, WIDE], proposed(128, 64, 32, stages=8)) == [WIDE]
    # Five stages more cost 2.5: more than a tile that is one step away.
    many_stages = TritonGEMMConfig("triton::mm", 128, 128, 32, 8, 4)
    assert nearest([WIDE, many_stages], proposed(128, 64, 32, stages=8)) == [many_stages]


def test_each_choice_is_listed_once_and_in_the_order_of_the_proposals() -> None:
    choices: list[Choice] = [config(16), config(64), WIDE]
    found = nearest(choices, proposed(128, 64, 32), proposed(128, 64, 32, stages=4), proposed(16, 16, 32, warp=(8, 8)))
    assert found == [WIDE, config(16)]


def test_a_split_stands_for_inductors_split_where_there_is_one() -> None:
    splits: list[Choice] = [DecomposeKConfig(2), DecomposeKConfig(4), WIDE]
    assert nearest(splits, proposed(128, 64, 32, split=4)) == [DecomposeKConfig(4)]
    assert nearest(splits, proposed(128, 64, 32, split=3)) == [WIDE]
    assert nearest(splits, proposed(128, 64, 32)) == [WIDE]
    assert nearest([DecomposeKConfig(2), LIBRARY], proposed(128, 64, 32)) == []


def test_the_library_can_be_put_in_front() -> None:
    truth = truth_of({problem_of(64): {config(16): 1.0, AtenChoice("mm"): 4.0, config(32): 2.0}})
    assert order_of(after_library(lambda truth, measured: np.array([2, 1, 0])), truth) == [
        AtenChoice("mm"),
        config(32),
        config(16),
    ]


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    truth = truth_of({problem_of(64): {config(16): 1.0}})
    with pytest.raises(MissingDependencyError, match=r"pip install 'torch-diode-lib\[baselines\]'"):
        nv_matmul_heuristics_ranker()(truth, truth.problems[0])


def test_inductors_list_is_what_max_autotune_tries_by_default() -> None:
    listed = default_choices(measured_of(MMShape.of("mm", 4096, 4096, 4096, layout="NT")))
    assert listed[0] == AtenChoice("mm")
    assert len(listed) > 15
    assert {type(choice) for choice in listed[1:]} == {TritonGEMMConfig}


def test_inductors_list_is_ranked_in_its_order_without_what_was_not_measured() -> None:
    library, *tiled = default_choices(measured_of(LINEAR))
    first, third = tiled[0], tiled[2]
    times = {third: 3.0, config(256): 1.0, first: 9.0, library: 5.0}
    assert order_of(inductor_default_ranker(), truth_of({LINEAR: times})) == [library, first, third]


def test_a_vector_as_bias_goes_to_the_library_as_it_is() -> None:
    """Both ways were measured; the one that expands the vector is slower, and is not what is listed first."""
    assert default_choices(measured_of(LINEAR))[0] == VECTOR
    truth = truth_of({LINEAR: {LIBRARY: 14.0, VECTOR: 10.0, config(64): 12.0}})
    assert order_of(library_ranker, truth) == [VECTOR, LIBRARY]
    matrix = MMShape.of("addmm", 256, 1024, 512, layout="NT", bias="matrix")
    assert default_choices(measured_of(matrix))[0] == LIBRARY
    assert order_of(library_ranker, truth_of({matrix: {LIBRARY: 14.0, VECTOR: 10.0}})) == [LIBRARY, VECTOR]


def test_the_public_architecture_learns_which_of_two_configs_is_faster() -> None:
    slow_and_fast = {config(16): 10.0, config(64): 5.0, AtenChoice("mm"): 7.0}
    truth = truth_of({problem_of(64 * size): slow_and_fast for size in range(1, 17)})
    ranker = train_public_architecture(truth, epochs=60, patience=60)
    unseen = truth_of({problem_of(500): slow_and_fast})
    assert order_of(ranker, unseen) == [config(64), AtenChoice("mm"), config(16)]
