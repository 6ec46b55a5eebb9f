"""The suites for models: diode's own types pass them, and each check fails for a model that breaks what it checks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.integration.choices.models import SQUARE_64, write_model

from diode.features import COLUMNS
from diode.model import ModelWrapper, Prediction, TimingModel
from diode.model.card import card_path, read_card, write_card
from diode.testing import ArtifactConformance, TimingModelConformance


class OfTrained(ArtifactConformance):
    type: str

    @pytest.fixture(autouse=True)
    def _trained(self, trained):
        self.weights = trained(self.type)

    def artifact(self) -> Path:
        return self.weights


class TestBase(OfTrained):
    type = "base"


class TestDeep(OfTrained):
    type = "deep"


class TestTrees(OfTrained):
    type = "gbdt"


class Wrapped:
    """A sound model, for others to spoil."""

    sound: TimingModel

    def predict(self, features) -> Prediction:
        return self.sound.predict(features)

    def predict_choices(self, features) -> Prediction:
        return self.predict(features)


class Short(Wrapped):
    def predict(self, features):
        told = self.sound.predict(features)
        return Prediction(told.log_ratio[:-1], told.sigma[:-1], told.failure[:-1])


class Column(Wrapped):
    def predict(self, features):
        told = self.sound.predict(features)
        return replace(told, sigma=told.sigma[:, None])


class Overflowing(Wrapped):
    def predict(self, features):
        told = self.sound.predict(features)
        huge = features[:, COLUMNS.index("log_flops")] > 40
        return replace(told, log_ratio=np.where(huge, np.inf, told.log_ratio))


class Sure(Wrapped):
    def predict(self, features):
        told = self.sound.predict(features)
        return replace(told, sigma=told.sigma - told.sigma.mean() - 1)


class Logits(Wrapped):
    def predict(self, features):
        return replace(self.sound.predict(features), failure=np.full(len(features), -3.0, np.float32))


class Relative(Wrapped):
    """Centers what it says of the rows that it is given together."""

    def predict(self, features):
        told = self.sound.predict(features)
        return replace(told, log_ratio=told.log_ratio - told.log_ratio.mean())


class Drawing(Wrapped):
    draw = np.random.default_rng(0)

    def predict(self, features):
        told = self.sound.predict(features)
        return replace(told, sigma=told.sigma + self.draw.random(len(features)).astype(np.float32) * 1e-6)


class OneBuffer(Wrapped):
    """Keeps what it computes in one place, whichever thread asks."""

    def predict(self, features):
        self.features = features
        threading.Event().wait(0.002)
        return self.sound.predict(features if self.features is features else features * 0)


class Normalising(Wrapped):
    def predict(self, features):
        told = self.sound.predict(features)
        features[:, 0] -= 1.0
        return told


class ByPlace(Wrapped):
    """Looks only at the first choices that it is given."""

    def predict_choices(self, features):
        told = self.sound.predict(features)
        return replace(told, log_ratio=np.where(np.arange(len(features)) < 40, told.log_ratio, 50.0).astype(np.float32))


class Hasty(Wrapped):
    """What it does not look at closely is said to be faster than everything."""

    def predict_choices(self, features):
        told = self.sound.predict(features)
        rough = features[:, COLUMNS.index("is_library")] > 0
        return replace(told, log_ratio=np.where(rough, -5.0, told.log_ratio).astype(np.float32))


BROKEN = {
    Short: "test_there_is_one_prediction_for_each_row",
    Column: "test_there_is_one_prediction_for_each_row",
    Overflowing: "test_predictions_are_finite",
    Sure: "test_doubt_is_not_negative",
    Logits: "test_failure_is_a_probability",
    Relative: "test_rows_do_not_influence_one_another",
    Drawing: "test_predictions_are_the_same_each_time",
    OneBuffer: "test_predictions_are_the_same_in_every_thread",
    Normalising: "test_features_are_left_as_they_are",
    ByPlace: "test_the_order_does_not_depend_on_how_choices_are_listed",
    Hasty: "test_what_is_put_first_was_looked_at_closely",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("sound") / "sound.safetensors", likes=SQUARE_64, library=1.5)


def suite_of(make):
    class Suite(TimingModelConformance):
        def make_model(self):
            return make()

    return Suite()


def test_a_sound_model_breaks_nothing(sound):
    assert suite_of(lambda: ModelWrapper(sound).model).violations() == {}


def test_every_check_of_models_has_a_model_that_it_catches():
    assert set(BROKEN.values()) == set(TimingModelConformance.checks())


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_model_that_breaks_the_contract_is_caught(broken, sound):
    def make():
        model = broken()
        model.sound = ModelWrapper(sound).model
        return model

    with pytest.raises(AssertionError, match=r"^mm "):  # it names the problem
        getattr(suite_of(make), BROKEN[broken])()


class Careless(ModelWrapper):
    """Takes whatever the card says, and whatever the weights are."""

    @property
    def card(self):
        return read_card(card_path(self.path))

    @property
    def model(self):
        return ModelWrapper(SOUND[0]).model


SOUND: list[Path] = []


class ElsewhereAnother(ModelWrapper):
    """Depends on where it lies."""

    @property
    def model(self):
        model = Wrapped()
        model.sound = super().model
        offset = np.float32(len(str(self.path)))
        model.predict = lambda features: replace(
            told := model.sound.predict(features), log_ratio=told.log_ratio + offset
        )
        return model


def artifact_suite(path, loader=ModelWrapper):
    class Suite(ArtifactConformance):
        def artifact(self):
            return path

        def load(self, path):
            return loader(path)

    return Suite()


def test_a_loader_that_checks_nothing_is_caught(sound):
    SOUND[:] = [sound]
    assert artifact_suite(sound, Careless).violations().keys() == {
        "test_other_columns_are_refused",
        "test_another_version_of_the_features_is_refused",
        "test_weights_of_another_model_are_refused",
    }


def test_an_artifact_that_depends_on_its_place_is_caught(sound):
    assert artifact_suite(sound, ElsewhereAnother).violations().keys() == {"test_it_predicts_the_same_wherever_it_lies"}


def test_an_artifact_that_nobody_could_find_is_caught(sound, tmp_path):
    path = write_model(tmp_path / "nobody.safetensors", templates=())
    assert artifact_suite(path).violations() == {
        "test_the_card_says_what_the_model_is_for": "the card leaves templates empty: "
        "nobody can tell whom the model serves"
    }
    card = read_card(card_path(path))
    write_card(msgspec.structs.replace(card, schema=99), card_path(path))
    assert "test_it_is_found_for_the_hardware_that_it_was_trained_on" in artifact_suite(path).violations()


def test_a_card_that_names_nothing_known_is_told(tmp_path):
    path = write_model(tmp_path / "strange.safetensors", ops=("conv",))
    found = artifact_suite(path).violations()
    assert found["test_predictions_are_finite"].startswith(
        "it can be asked about none of the problems here: the card names conv"
    )
