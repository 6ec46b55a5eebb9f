"""Whatever became of an integration, undoing it leaves nothing behind."""

from __future__ import annotations

from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

from diode.errors import IntegrationError
from diode.integration.matmul_integration import MatmulIntegration


def test_what_was_integrated_twice_is_undone_at_once(model):
    integration = MatmulIntegration(model)
    assert integration.integrate()
    assert integration.integrate()
    integration.undo()
    assert type(V.choices) is InductorChoices
    assert config.inductor_choices_class is None
    assert not config.triton.enable_persistent_tma_matmul


def test_an_interface_that_turns_out_to_be_missing_half_way_is_left(model):
    class Missing(MatmulIntegration):
        def enable_configs(self, models):
            raise IntegrationError("this torch has no such option")

    status = Missing(model).integrate()
    assert (status.state, status.message) == ("interface unavailable", "this torch has no such option")
    assert type(V.choices) is InductorChoices
    assert config.inductor_choices_class is None
