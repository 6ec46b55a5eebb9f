"""The suite for integrations: diode's own passes it, and each check fails for one that breaks what it checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.choices.models import write_model
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

from diode.errors import IntegrationError
from diode.integration import BaseIntegration
from diode.integration.base_integration import IntegrationStatus
from diode.integration.matmul_integration import MatmulIntegration
from diode.integration.torch_state import TorchState, torch_left_as_it_was
from diode.testing import IntegrationConformance


class TestMatmul(IntegrationConformance):
    @pytest.fixture(autouse=True)
    def _model(self, tmp_path: Path):
        self.path = write_model(tmp_path / "all.safetensors")

    def make_integration(self):
        return MatmulIntegration(self.path)


class TestMatmulWithoutModel(IntegrationConformance):
    expected_state = "no model"

    @pytest.fixture(autouse=True)
    def _nowhere(self, tmp_path: Path):
        self.path = tmp_path / "nowhere.safetensors"

    def make_integration(self):
        return MatmulIntegration(self.path)


class Handler(InductorChoices):
    def uuid(self):
        return "from another package"


class Sound(BaseIntegration):
    """Sets a handler and an option, and takes both back."""

    name = "sound"
    needs_model = False
    option = "shape_padding"

    def __init__(self):
        self.before = None

    def probe(self):
        return "V.choices"

    def find_models(self):
        return []

    def engage(self, models):
        self.disengage()
        self.before = (V.choices, config.shape_padding)
        V.set_choices_handler(Handler())

    def enable_configs(self, models):
        config.shape_padding = not self.before[1]
        return ("shape_padding",)

    def disengage(self):
        if self.before is not None:
            handler, config.shape_padding = self.before
            V.set_choices_handler(handler)
            self.before = None

    def why_no_model(self):
        return "it needs none"


class Nameless(Sound):
    name = ""


class Elsewhere(Sound):
    def probe(self):
        raise IntegrationError("this torch has no such interface: install another")


class Waiting(Sound):
    def integrate(self):
        return IntegrationStatus(self.name)


class Littering(Sound):
    def probe(self):
        config.epilogue_fusion = not config.epilogue_fusion
        return "config"


class Eager(Sound):
    """Engages what it finds as it finds it."""

    def find_models(self):
        V.set_choices_handler(Handler())
        return []


class Raising(Sound):
    def integrate(self):
        return self._integrate()


class HalfWay(Sound):
    def _undo_quietly(self):
        pass


class Staying(Sound):
    def disengage(self):
        if self.before is not None:
            config.shape_padding = self.before[1]


class Strict(Sound):
    def disengage(self):
        if self.before is None:
            raise RuntimeError("nothing is engaged")
        super().disengage()


class Nesting(Sound):
    """Takes what it finds in place for the user's, also when that is its own."""

    def engage(self, models):
        self.before = (V.choices, config.shape_padding)
        V.set_choices_handler(Handler())


class Once(Sound):
    used = False

    def engage(self, models):
        if self.used:
            raise IntegrationError("it was engaged before")
        self.used = True
        super().engage(models)


class Autotuning(Sound):
    def engage(self, models):
        super().engage(models)
        config.max_autotune = True

    def disengage(self):
        super().disengage()
        config.max_autotune = False


class Silent(Sound):
    def enable_configs(self, models):
        super().enable_configs(models)
        return ()


class Boasting(Sound):
    def enable_configs(self, models):
        return (*super().enable_configs(models), "epilogue_fusion")


class Forgetting(Sound):
    """Puts torch's own handler back, whoever's was there."""

    def disengage(self):
        engaged = self.before is not None
        super().disengage()
        if engaged:
            V.set_choices_handler(InductorChoices())


BROKEN = {
    Nameless: "test_it_has_a_name",
    Elsewhere: "test_it_comes_to_what_is_expected_here",
    Waiting: "test_its_status_is_definite",
    Littering: "test_probing_leaves_nothing_behind",
    Eager: "test_looking_for_models_changes_nothing",
    Raising: "test_a_step_that_fails_is_told_and_not_raised",
    HalfWay: "test_a_step_that_fails_leaves_nothing_behind",
    Staying: "test_undoing_takes_everything_back",
    Strict: "test_undoing_twice_or_too_early_does_no_harm",
    Nesting: "test_integrating_twice_is_as_integrating_once",
    Once: "test_it_can_be_integrated_again",
    Autotuning: "test_it_switches_no_autotuning_on",
    Silent: "test_the_options_that_it_changes_are_told",
    Boasting: "test_the_options_that_it_changes_are_told",
    Forgetting: "test_a_handler_of_the_user_s_comes_back",
}


def suite_of(integration):
    class Suite(IntegrationConformance):
        def make_integration(self):
            return integration()

    return Suite()


def test_a_sound_integration_breaks_nothing():
    assert suite_of(Sound).violations() == {}


def test_every_check_of_integrations_has_one_that_it_catches():
    assert set(BROKEN.values()) == set(IntegrationConformance.checks())


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_an_integration_that_breaks_the_contract_is_caught_and_cleaned_up(broken):
    before = TorchState.now()
    assert BROKEN[broken] in suite_of(broken).violations()
    assert before.differences(TorchState.now()) == []


def test_what_an_integration_can_change_in_torch_is_seen_and_put_back():
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    def listen(*arguments):
        pass

    outside = TorchState.now()
    with torch_left_as_it_was() as before:
        config.triton.enable_persistent_tma_matmul = True
        vars(config)["_config"]["epilogue_fusion"].default = False
        V.set_choices_handler(Handler())
        get_algorithm_selector_cache().feedback_saver_fns.append(listen)
        InductorChoices.get_base_mm_configs = listen
        told = before.differences(TorchState.now())
    assert [line.partition(":")[0].partition(" was")[0] for line in told] == [
        "option epilogue_fusion",
        "option triton.enable_persistent_tma_matmul",
        "the handler of choices",
        "feedback_saver_fns of the selection of algorithms",
        "InductorChoices.get_base_mm_configs",
    ]
    assert outside.differences(TorchState.now()) == []
