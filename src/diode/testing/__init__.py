"""Checks of what diode expects of models and integrations, for those who write their own.

Derive a class from one of these, say what is to be checked, and let pytest collect it; nothing else is needed:

    from diode.testing import IntegrationConformance

    class TestMine(IntegrationConformance):
        def make_integration(self):
            return MyIntegration()

Without pytest, `TestMine().violations()` tells by the name of each check that fails what is wrong.
"""

from __future__ import annotations

from diode.testing.artifacts import ArtifactConformance
from diode.testing.conformance import Conformance
from diode.testing.integrations import IntegrationConformance
from diode.testing.timing_models import TimingModelConformance

__all__ = ["ArtifactConformance", "Conformance", "IntegrationConformance", "TimingModelConformance"]
