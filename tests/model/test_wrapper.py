"""A trained model in use: loaded late, the same wherever it runs, with a screen that never lets the rest overtake."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.model.conftest import untrained

from diode.errors import UsageError
from diode.features import COLUMNS, ChoiceTable, feature_matrix
from diode.model.card import card_path
from diode.model.fitting import save_model
from diode.model.prediction import LIKELY_ILLEGAL, Prediction, prediction_of
from diode.model.spec import NetworkSpec
from diode.model.wrapper import ModelWrapper, NetworkModel
from diode.types import AtenChoice, Choice, MMShape, TritonGEMMConfig
from diode.types.known_hardware import H200

SCREEN = NetworkSpec("base", len(COLUMNS), 8, 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    save_model(untrained(screen=SCREEN), path)
    return path


@pytest.fixture(scope="module")
def choices() -> list[Choice]:
    tiles = product((16, 32, 64, 128), (16, 32, 64, 128, 256), (16, 32, 64, 128), (1, 3, 5), (4, 8))
    return [AtenChoice("addmm"), *(TritonGEMMConfig("triton::mm", *tile) for tile in tiles)]


def assert_close(one: Prediction, other: Prediction) -> None:
    np.testing.assert_allclose(one.log_ratio, other.log_ratio, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.sigma, other.sigma, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.failure, other.failure, rtol=1e-4, atol=1e-5)


def test_nothing_is_read_before_it_is_needed(tmp_path: Path, problem: MMShape) -> None:
    path = tmp_path / "model.safetensors"
    wrapper = ModelWrapper(str(path))
    assert wrapper.path == path
    save_model(untrained(), path)
    weights = path.read_bytes()
    path.unlink()
    assert wrapper.card.name == "untrained"
    assert wrapper.digest == wrapper.card.weights_sha256
    path.write_bytes(weights)
    card_path(path).unlink()
    assert len(wrapper.predict(H200, problem, [AtenChoice("addmm")]).log_ratio) == 1
    path.unlink()
    assert len(wrapper.predict(H200, problem, [AtenChoice("addmm")] * 3).log_ratio) == 3


def test_both_formats_predict_the_same(tmp_path: Path, problem: MMShape, choices: list[Choice]) -> None:
    paths = [tmp_path / name for name in ("one.safetensors", "other.pt")]
    for path in paths:
        save_model(untrained(), path)
    found = [ModelWrapper(path).predict(H200, problem, choices) for path in paths]
    for name in ("log_ratio", "sigma", "failure"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))


def test_arrays_torch_and_compiled_torch_predict_the_same(path: Path, problem: MMShape, choices: list[Choice]) -> None:
    features = feature_matrix(H200, problem, ChoiceTable.of(choices))
    arrays = ModelWrapper(path).model
    compiled = ModelWrapper(path, compile=True).model
    assert_close(compiled.predict(features), arrays.predict(features))
    assert_close(compiled.predict(features[:77]), arrays.predict(features[:77]))


def test_a_cuda_device_that_is_not_there_is_an_error_that_says_so(path: Path) -> None:
    if torch.cuda.is_available():
        assert ModelWrapper(path, "cuda").model is not None
    else:
        with pytest.raises(UsageError, match=r"'cuda:0': no CUDA device .* use cpu"):
            _ = ModelWrapper(path, "cuda:0").model


def test_what_torch_is_set_to_does_not_change_a_prediction(path: Path, problem: MMShape, choices: list[Choice]) -> None:
    usual = ModelWrapper(path).predict(H200, problem, choices)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), torch.inference_mode():
            elsewhere = ModelWrapper(path).predict(H200, problem, choices)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(usual.log_ratio, elsewhere.log_ratio)


def test_a_table_and_its_choices_are_the_same_question(path: Path, problem: MMShape, choices: list[Choice]) -> None:
    wrapper = ModelWrapper(path)
    asked = wrapper.predict(H200, problem, choices)
    np.testing.assert_array_equal(asked.log_ratio, wrapper.predict(H200, problem, ChoiceTable.of(choices)).log_ratio)
    np.testing.assert_array_equal(asked.log_ratio, wrapper.predict(H200, problem, choices).log_ratio)


def test_batches_predict_what_the_whole_does(path: Path, problem: MMShape, choices: list[Choice]) -> None:
    model = ModelWrapper(path).model
    features = feature_matrix(H200, problem, ChoiceTable.of(choices))
    whole = model.predict(features)
    parts = [model.predict(features[start : start + 100]) for start in range(0, len(features), 100)]
    joined = Prediction(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("log_ratio", "sigma", "failure")))
    assert_close(joined, whole)


def network_saying(log_ratio: Sequence[float], failure: Sequence[float] | None = None, sigma: float = 0.1) -> object:
    """A network of one member that says this of rows that carry their number in the first column."""
    ratios = np.array(log_ratio, np.float32)
    chances = np.array(failure if failure is not None else [0.01] * len(ratios), np.float32)

    def call(features: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = features[:, 0].astype(int)
        logits = np.log(chances / (1 - chances))
        columns = [ratios[rows], np.full(len(rows), np.log(sigma), np.float32), logits[rows]]
        return np.stack(columns, axis=-1)[None].astype(np.float32)

    return call


def numbered(count: int, library: Sequence[int] = ()) -> NDArray[np.float32]:
    features = np.zeros((count, len(COLUMNS)), np.float32)
    features[:, 0] = np.arange(count)
    features[:, COLUMNS.index("is_tiled")] = 1
    features[list(library), COLUMNS.index("is_tiled")] = 0
    return features


def screened(large: object, screen: object) -> NetworkModel:
    return NetworkModel(large, screen, 1.0)  # type: ignore[arg-type]


def test_a_screen_leaves_the_plausible_to_the_large_network() -> None:
    count = 1000
    slow_to_fast = np.linspace(3, 0, count, dtype=np.float32)
    best_of_the_plausible = np.ones(count)
    best_of_the_plausible[count - 5] = 0.25
    best_of_the_plausible[3] = 0.0  # the large network would like it, but is never asked
    prediction = screened(network_saying(best_of_the_plausible), network_saying(slow_to_fast)).predict_choices(
        numbered(count)
    )
    order = prediction.order()
    assert order[0] == count - 5
    assert 3 not in order[:100]
    # What was looked at closely is ahead of all that was not.
    assert prediction.log_ratio[3] == slow_to_fast[3] >= prediction.log_ratio[count - 100]


def test_no_choice_that_was_not_looked_at_overtakes_one_that_was() -> None:
    count = 600
    optimistic = screened(network_saying(np.full(count, 2.0)), network_saying(np.linspace(1, 0, count)))
    prediction = optimistic.predict_choices(numbered(count))
    assert prediction.log_ratio.min() == prediction.log_ratio.max() == 2.0
    refined = prediction.order()[:600]
    np.testing.assert_array_equal(refined, np.arange(600))


def test_library_kernels_are_looked_at_whatever_the_screen_says_of_them() -> None:
    count = 800
    screen = network_saying(np.r_[9.0, np.linspace(0, 3, count - 1)], np.r_[0.9, np.full(count - 1, 0.01)])
    large = network_saying(np.r_[-1.0, np.ones(count - 1)])
    assert screened(large, screen).predict_choices(numbered(count, library=[0])).order()[0] == 0


def test_few_choices_are_not_screened(problem: MMShape) -> None:
    count = 50
    backwards = screened(network_saying(np.arange(count)), network_saying(np.arange(count)[::-1]))
    np.testing.assert_array_equal(backwards.predict_choices(numbered(count)).order(), np.arange(count))


def test_a_real_screen_and_its_network_agree_on_few_choices_and_rank_all_of_many(
    path: Path, problem: MMShape, choices: list[Choice]
) -> None:
    model = ModelWrapper(path).model
    features = feature_matrix(H200, problem, ChoiceTable.of(choices))
    few = model.predict_choices(features[:60])
    np.testing.assert_array_equal(few.log_ratio, model.predict(features[:60]).log_ratio)
    many = model.predict_choices(features)
    assert sorted(many.order().tolist()) == list(range(len(choices)))
    assert np.isfinite(many.log_ratio).all()
    again = model.predict_choices(features)
    np.testing.assert_array_equal(many.order(), again.order())


def test_ties_stay_as_they_were_given_and_the_likely_illegal_come_last() -> None:
    ratios = np.array([2.0, 1.0, 1.0, 0.5, 1.0], np.float32)
    failure = np.array([0.0, 0.1, 0.4, 0.9, LIKELY_ILLEGAL], np.float32)
    assert Prediction(ratios, ratios, failure).order().tolist() == [1, 2, 4, 0, 3]


def test_members_that_disagree_doubt_more() -> None:
    alike, apart = (
        np.array([[[1.0 - gap, np.log(0.1), 0.0]], [[1.0 + gap, np.log(0.1), 0.0]]], np.float32) for gap in (0.0, 0.3)
    )
    assert prediction_of(alike, 2.0).sigma[0] == pytest.approx(0.2)
    assert prediction_of(apart, 1.0).sigma[0] == pytest.approx(np.hypot(0.1, 0.3), rel=1e-5)
    assert prediction_of(apart, 1.0).log_ratio[0] == pytest.approx(1.0)
    assert prediction_of(apart, 1.0).failure[0] == pytest.approx(0.5)


def test_wild_outputs_stay_numbers() -> None:
    wild = np.array([[[50.0, 1e6, 1e6], [-50.0, -1e6, -1e6]]], np.float32)
    prediction = prediction_of(wild, 1.0)
    assert all(np.isfinite(getattr(prediction, name)).all() for name in ("log_ratio", "sigma", "failure"))


def test_a_prediction_in_microseconds() -> None:
    prediction = Prediction(np.log(np.array([1.0, 2.5], np.float32)), np.ones(2, np.float32), np.zeros(2, np.float32))
    np.testing.assert_allclose(prediction.time_us(4.0), [4.0, 10.0], rtol=1e-6)
