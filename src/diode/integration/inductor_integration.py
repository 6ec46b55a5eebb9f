"""Diode's choices for Inductor by hand: for the whole process, for one thread, or for one `torch.compile`.

What `V.set_choices_handler` sets is not known to torch's caches: a graph that was compiled without it is taken from
there, and one compiled with it is handed to others. What `install_diode_choices` installs is known to them, and
so is what `create_choices_factory` makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diode.errors import IntegrationError
from diode.integration.integrations import registry
from diode.integration.matmul_integration import MatmulIntegration
from diode.integration.policy import TopK
from diode.settings import OnMismatch

if TYPE_CHECKING:
    from diode.integration.choices import DiodeInductorChoices
    from diode.integration.factory import ChoicesFactory

__all__ = ["DiodeInductorChoices", "create_choices_factory", "create_diode_choices", "install_diode_choices"]


def install_diode_choices(
    model_path: str | Path | None = None,
    device: str = "cpu",
    top_k_configs: TopK = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    on_mismatch: OnMismatch | None = None,
    learn: str | Path | None = None,
) -> DiodeInductorChoices:
    """Has a model choose in all compiles of this process, in every thread, until `diode.disable()`.

    Gives the handler, whose `get_stats()` tells what it did. Where no model can be found, every GEMM falls back to what
    Inductor would do, unless `enable_fallback` is off: then this raises.
    """
    integration = MatmulIntegration(
        model_path,
        device,
        top_k_configs,
        enable_fallback,
        performance_threshold,
        on_mismatch=on_mismatch,
        learn=learn,
        even_without_model=enable_fallback,
    )
    registry.register(integration)
    status = registry.integrate(integration.name)
    if not status or integration.choices is None:
        raise IntegrationError(status.message)
    return integration.choices


def create_diode_choices(
    model_path: str | Path | None = None,
    device: str = "cpu",
    top_k_configs: TopK = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    on_mismatch: OnMismatch | None = None,
    learn: str | Path | None = None,
) -> DiodeInductorChoices:
    """A handler for `V.set_choices_handler`, which is a context manager too."""
    from diode.integration.choices import DiodeInductorChoices

    return DiodeInductorChoices(
        model_path, device, top_k_configs, enable_fallback, performance_threshold, on_mismatch=on_mismatch, learn=learn
    )


def create_choices_factory(
    model_path: str | Path | None = None,
    device: str = "cpu",
    top_k_configs: TopK = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    on_mismatch: OnMismatch | None = None,
    learn: str | Path | None = None,
) -> ChoicesFactory:
    """For one compile: `torch.compile(f, options={"max_autotune": True, "inductor_choices_class": factory})`."""
    from diode.integration.factory import ChoicesFactory, Parameters

    path = None if model_path is None else str(model_path)
    store = None if learn is None else str(learn)
    return ChoicesFactory(
        Parameters(path, device, top_k_configs, enable_fallback, performance_threshold, on_mismatch, store)
    )


def __getattr__(name: str) -> object:
    # The class is derived from one of Inductor's; everything else here can be imported without Inductor.
    if name == "DiodeInductorChoices":
        from diode.integration.choices import DiodeInductorChoices

        return DiodeInductorChoices
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
