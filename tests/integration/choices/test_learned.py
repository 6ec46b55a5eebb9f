"""What was measured here before decides: for a described H200, with a store as compiles would have written it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.integration.choices.lab import H100, H200, lower, matrix
from tests.integration.choices.models import SQUARE_64
from tests.learning.made_up import BY_INDUCTOR, tuned
from torch._inductor import config

from diode.features import ChoiceTable
from diode.integration.choices import DiodeInductorChoices
from diode.integration.decision import last_decision
from diode.integration.factory import ChoicesFactory, Parameters
from diode.integration.learned import LearnedHere, known_first
from diode.integration.ranking import rank
from diode.integration.surroundings import software
from diode.learning.store import StoreWriter
from diode.model.wrapper import ModelWrapper
from diode.types import AtenChoice, Choice, Environment, MMShape, TimingMethod

MM = (matrix(512, 1024), matrix(1024, 2048))
PROBLEM = MMShape.of("mm", 512, 2048, 1024)
LIBRARY = AtenChoice("mm")
TALL = {"log_block_m": 7.0, "log_block_n": 5.0, "log_block_k": 6.0, "stages": 4.0, "log_warps": 2.0}
"""What the models of these tests do not like: 128x32x64 with 4 stages and 4 warps."""


def here(hardware=H200) -> Environment:
    known = software()
    return Environment(hardware, torch=known.torch, triton=known.triton, template_hashes=known.template_hashes)


@pytest.fixture
def tall(make_handler) -> Choice:
    (choice,) = lower(torch.mm, *MM, handler=make_handler(likes=TALL, top_k_configs=1)).choices
    return choice


@pytest.fixture
def square(make_handler) -> Choice:
    (choice,) = lower(torch.mm, *MM, handler=make_handler(likes=SQUARE_64, top_k_configs=1)).choices
    return choice


@pytest.fixture
def store(tmp_path) -> Path:
    return tmp_path / "store"


def keep(
    store: Path,
    times: dict[Choice, float | None],
    problem: MMShape = PROBLEM,
    environment: Environment | None = None,
    method: TimingMethod = BY_INDUCTOR,
) -> None:
    writer = StoreWriter(store)
    writer.append(tuned(problem, times, environment or here(), method))
    writer.close()


def decided(handler, *arguments, hardware=H200, **settings) -> tuple[Choice, ...]:
    return lower(torch.mm, *(arguments or MM), handler=handler, hardware=hardware, **settings).choices


def answers(handler) -> int:
    return handler.get_stats()["store_answers"]


def test_the_fastest_here_goes_first_and_alone_where_one_is_wanted(make_handler, store, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    assert decided(make_handler(sigma=20.0, learn=store, top_k_configs=1)) == (tall,)
    assert decided(make_handler(sigma=20.0, learn=store, top_k_configs="auto")) == (tall,)
    handler = make_handler(sigma=20.0, learn=store, top_k_configs=3)
    left = decided(handler)
    assert len(left) == 3
    assert {tall, LIBRARY} < set(left)
    assert last_decision().picks[0].choice == tall
    assert answers(handler) == 1
    decided(handler)
    assert last_decision().remembered
    assert answers(handler) == 2


def test_the_decision_says_that_it_was_measured(make_handler, store, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    decided(make_handler(sigma=20.0, learn=store, top_k_configs=1))
    decision = last_decision()
    assert (decision.measured_us, decision.compared) == (50.0, 3)
    assert "the first was the fastest of 3 measured here: 50.00 us" in str(decision)
    decided(make_handler(sigma=20.0, top_k_configs=1))
    assert last_decision().measured_us is None
    assert "measured here" not in str(last_decision())


def test_other_problems_devices_and_software_are_not_answered(make_handler, store, tall, square):
    times = {LIBRARY: 60.0, square: 55.0, tall: 50.0}
    keep(store, times, environment=here(H100))
    keep(store, times, environment=Environment(H200, torch="1.0", triton=software().triton))
    keep(store, times, problem=MMShape.of("mm", 512, 2048, 1024, layout="TN"))
    handler = make_handler(sigma=20.0, learn=store, top_k_configs=1)
    assert decided(handler) == (square,)
    assert answers(handler) == 0


def test_sizes_that_vary_are_left_to_the_model(make_handler, store, tmp_path, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    model = ModelWrapper(sorted(tmp_path.glob("*.safetensors"))[0])
    knowledge = LearnedHere(store).knowledge(H200, model)
    candidates = [LIBRARY, square, tall]
    table = ChoiceTable.of(candidates)
    for sizes, place in (((PROBLEM,), 2), ((PROBLEM, MMShape.of("mm", 1024, 2048, 1024)), None)):
        ranked = rank(model, H200, sizes, table, knowledge=knowledge)
        found = known_first(knowledge, H200, sizes, table, ranked, 0.0, candidates.__getitem__)
        assert (None if found is None else found[0]) == place


def test_readings_of_the_launch_do_not_overrule_the_model(make_handler, store, tall, square):
    keep(store, {LIBRARY: 37.0, square: 23.0, tall: 22.0})  # predicted: 10 us
    handler = make_handler(sigma=20.0, learn=store, top_k_configs=1)
    assert decided(handler) == (square,)
    assert answers(handler) == 0


def test_what_would_not_be_safe_alone_is_not_left_alone(make_handler, store, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    doubtful = {"sigma": 20.0, "learn": store, "doomed": {"log_block_m": 6.5}}
    handler = make_handler(top_k_configs=1, **doubtful)
    assert decided(handler) == (square,)
    assert (answers(handler), last_decision().measured_us) == (0, None)
    # Beside others it may go first: it ran here, whatever the model thinks.
    handler = make_handler(top_k_configs=2, **doubtful)
    assert set(decided(handler)) == {tall, LIBRARY}
    assert answers(handler) == 1


def test_predictions_are_corrected_by_other_problems(make_handler, store, square):
    def ratio(handler):
        decided(handler, matrix(4096, 1024), MM[1])
        of = {pick.choice: pick.predicted_us for pick in last_decision().picks}
        (tiled,) = (us for choice, us in of.items() if choice != LIBRARY)
        return of[LIBRARY] / tiled

    before = ratio(make_handler(top_k_configs=2))
    for size in range(4096, 4096 + 64 * 20, 64):
        keep(store, {LIBRARY: 900.0, square: 100.0}, problem=MMShape.of("mm", size, 4096, 1024))
    handler = make_handler(top_k_configs=2, learn=store)
    assert ratio(handler) > 1.2 * before
    assert last_decision().corrected_by == 20
    assert "predictions corrected by 20 problems measured here" in str(last_decision())
    assert (handler.get_stats()["store_corrections"], answers(handler)) == (1, 0)


def test_an_empty_store_changes_nothing(make_handler, store, tmp_path):
    without = make_handler(top_k_configs=3)
    path = sorted(tmp_path.glob("*.safetensors"))[0]
    store.mkdir()
    empty = DiodeInductorChoices(
        path, top_k_configs=3, enable_fallback=False, performance_threshold=1000.0, learn=store
    )
    told = []
    for handler in (without, empty):
        left = decided(handler)
        told.append((left, handler.uuid(), [(pick.predicted_us, pick.sigma) for pick in last_decision().picks]))
    assert told[0] == told[1]


def test_the_store_is_read_once_and_is_part_of_the_uuid(make_handler, store, tmp_path, tall, square):
    before = len(list(tmp_path.glob("*.safetensors")))
    make_handler()
    path = sorted(tmp_path.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns)[before]

    def handler():
        return DiodeInductorChoices(path, top_k_configs=1, performance_threshold=1000.0, learn=store)

    early, empty = handler(), handler().uuid()
    assert early.uuid() == empty
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    assert early.uuid() == empty
    assert decided(early) == (square,)
    late = handler()
    assert late.uuid() != empty
    assert late.uuid() == handler().uuid()
    assert late.uuid().startswith(late.identity)


def test_a_process_that_read_the_store_later_chooses_all_the_same(make_handler, store, tmp_path, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    path = str(sorted(tmp_path.glob("*.safetensors"))[0])
    factory = ChoicesFactory(Parameters(path, top_k_configs=1, learn=str(store)))
    other = ChoicesFactory(Parameters(path, top_k_configs=2, learn=str(store)))
    earlier = ChoicesFactory(Parameters(path, top_k_configs=1)).handler.uuid()
    assert earlier != factory.handler.uuid()
    for named, chooses in ((earlier, True), (factory.handler.uuid(), True), (other.handler.uuid(), False)):
        with config.patch(inductor_choices_class=named):
            assert factory.is_named_by_config() is chooses


def test_a_damaged_store_is_said_once_and_the_rest_of_it_used(make_handler, store, warnings, tall, square):
    keep(store, {LIBRARY: 60.0, square: 55.0, tall: 50.0})
    (store / "other.learned").write_bytes(b"what is this, and why is it here?")
    for _ in range(2):
        assert decided(make_handler(sigma=20.0, learn=store, top_k_configs=1)) == (tall,)
    what = "not a store of this version; move it out of the folder; what else was learned is used"
    assert warnings() == [f"{store / 'other.learned'}: {what}"]


def test_a_store_that_cannot_be_read_costs_only_what_was_learned(make_handler, store, warnings, square):
    store.write_text("a file where a folder should be")
    for _ in range(2):
        assert decided(make_handler(learn=store, top_k_configs=1)) == (square,)
    (told,) = warnings()
    assert told.startswith(f"nothing is learned from {store} (")
    assert told.endswith("move it away, or unset DIODE_LEARN")
