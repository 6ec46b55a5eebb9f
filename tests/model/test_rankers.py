"""What a model has to beat: the static table, lists, the library, chance."""

from __future__ import annotations

import numpy as np
from tests.model.made_up import config, problem_of, truth_of

from diode.model.evaluation import Ranker, evaluate, regrets
from diode.model.rankers import library_ranker, listed_ranker, random_ranker, static_table_ranker
from diode.model.truth import Truth
from diode.types import AtenChoice, Choice, MMShape, PersistentTMAConfig, TritonGEMMConfig

TRAINING = truth_of(
    {
        problem_of(size): {config(16): small, config(32): 10.0, config(64): large, config(128): None}
        for size, small, large in [(128, 9.0, 30.0), (130, 9.0, 30.0), (4000, 30.0, 5.0), (4002, 30.0, 5.0)]
    }
)
THERE = truth_of({problem_of(500): {config(128): 1.0, config(64): 2.0, config(32): 3.0, config(16): 4.0}})


def order_of(ranker: Ranker, truth: Truth) -> list[Choice]:
    (measured,) = truth.problems
    choices = truth.choices_of(measured)
    return [choices[place] for place in ranker(truth, measured)]


def test_a_static_table_is_chosen_on_training_alone_each_entry_beside_those_before_it() -> None:
    """Alone, 32 is best on average (10 each); beside it 64 helps the large problems most, then 16 the small ones."""
    ranker = static_table_ranker(TRAINING)
    order = order_of(ranker, THERE)
    assert order[:3] == [config(32), config(64), config(16)]
    # What the problem's own times say has no say.
    turned = truth_of({problem_of(500): {config(16): 1.0, config(32): 99.0, config(64): 2.0}})
    assert order_of(ranker, turned) == order[:3]


def test_a_static_table_has_its_size_and_leaves_out_what_it_does_not_have() -> None:
    assert order_of(static_table_ranker(TRAINING, size=1), THERE) == [config(32)]
    unseen = truth_of({problem_of(500): {config(256): 1.0}})
    assert order_of(static_table_ranker(TRAINING), unseen) == []


def test_what_was_seen_once_is_not_believed_to_be_best() -> None:
    rows = {problem_of(100 + n): {config(16): 10.0, config(32): 11.0} for n in range(20)}
    lucky = {problem_of(500): {config(16): 10.0, config(32): 11.0, config(64): 5.0}}
    order = order_of(static_table_ranker(truth_of(rows | lucky), size=1), THERE)
    assert order == [config(16)]


def test_widths_of_elements_have_tables_of_their_own() -> None:
    narrow = {problem_of(128): {config(16): 1.0, config(32): 2.0}}
    wide = {MMShape.of("mm", 128, 128, 128, dtype="float32"): {config(16): 2.0, config(32): 1.0}}
    ranker = static_table_ranker(truth_of(narrow | wide))
    there = dict.fromkeys((config(16), config(32)), 1.0)
    assert order_of(ranker, truth_of({problem_of(64): there}))[0] == config(16)
    assert order_of(ranker, truth_of({MMShape.of("mm", 64, 64, 64, dtype="float32"): there}))[0] == config(32)


def test_a_list_is_taken_in_its_order_and_by_what_does_not_follow_from_the_problem() -> None:
    even = TritonGEMMConfig("triton::bmm", 64, 64, 32, 3, 4, even_k=True, allow_tf32=True)
    persistent = PersistentTMAConfig("triton::mm_persistent_tma", 64, 64, 32, 3, 4, True, True, 132)
    truth = truth_of({problem_of(64): {config(16): 1.0, config(64): 2.0, persistent: 3.0, AtenChoice("mm"): 4.0}})
    listed: list[Choice] = [AtenChoice("addmm"), config(128), even, config(16), config(64), AtenChoice("bias_addmm")]
    ranker = listed_ranker(lambda measured: listed)
    assert order_of(ranker, truth) == [AtenChoice("mm"), config(64), config(16)]


def test_the_library_is_all_that_a_compile_without_autotuning_has() -> None:
    truth = truth_of({problem_of(64): {config(16): 1.0, AtenChoice("mm"): 4.0, AtenChoice("bias_addmm"): 5.0}})
    assert order_of(library_ranker, truth) == [AtenChoice("mm"), AtenChoice("bias_addmm")]
    assert evaluate(truth, regrets(truth, library_ranker)).at(1).regret_worst == 3.0


def test_chance_is_the_same_for_a_seed_and_tries_everything_once() -> None:
    times: dict[Choice, float | None] = {config(16 * n): float(n) for n in range(1, 60)}
    truth = truth_of({problem_of(64): times})
    one, again, other = (order_of(random_ranker(seed), truth) for seed in (1, 1, 2))
    assert one == again != other
    assert set(one) == set(times)
    both = truth_of({problem_of(size): times for size in (64, 128)})
    ranker = random_ranker(1)
    first, second = (ranker(both, measured) for measured in both.problems)
    assert (np.asarray(first) != second).any()
