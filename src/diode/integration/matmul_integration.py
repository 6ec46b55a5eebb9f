"""Matmul kernels by a model: diode's own integration, with the choices of Inductor's GEMM templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from diode import settings
from diode.errors import IntegrationError
from diode.integration.base_integration import BaseIntegration, ModelPointer
from diode.integration.model_source import PURPOSE, named_or_at_hand, why_no_model
from diode.integration.policy import TopK
from diode.model.registry import ModelRegistry

if TYPE_CHECKING:
    from diode.integration.choices import DiodeInductorChoices
    from diode.integration.factory import ChoicesFactory
    from diode.integration.installation import Installation

_PERSISTENT_TMA: Final = "triton::mm_persistent_tma"


class MatmulIntegration(BaseIntegration):
    """The parameters are those of `DiodeInductorChoices`; where one is not given, the environment says, or its default.

    With `even_without_model` it is registered where no model is found, too: every GEMM then falls back and is counted.
    So it is where something is to be learned, for without a model there is the most to learn.
    """

    name = "matmul"

    def __init__(
        self,
        model_path: str | Path | None = None,
        device: str = "cpu",
        top_k_configs: TopK | None = None,
        enable_fallback: bool = True,
        performance_threshold: float = 1.1,
        *,
        on_mismatch: settings.OnMismatch | None = None,
        learn: str | Path | None = None,
        even_without_model: bool = False,
    ) -> None:
        self._model_path = model_path
        self._device = device
        self._top_k_configs = top_k_configs
        self._enable_fallback = enable_fallback
        self._performance_threshold = performance_threshold
        self._on_mismatch = on_mismatch
        # Where another process has its working folder must not decide where the store is.
        folder = settings.learn_path() if learn is None else Path(learn)
        self._learn = None if folder is None else folder.absolute()
        self.needs_model = not (even_without_model or (enable_fallback and folder is not None))
        self._factory: ChoicesFactory | None = None
        self._installation: Installation | None = None
        self._found = ModelRegistry()

    @property
    def choices(self) -> DiodeInductorChoices | None:
        """The handler that answers once this integration was engaged."""
        return None if self._factory is None else self._factory.handler

    def probe(self) -> str:
        try:
            from diode.integration.installation import probe
        except ImportError as error:
            raise IntegrationError(
                f"torch._inductor cannot be imported ({error}): install a torch that compiles, 2.10 or later"
            ) from error
        return probe()

    def find_models(self) -> Sequence[ModelPointer]:
        self._found = named_or_at_hand(None if self._model_path is None else Path(self._model_path))
        return [pointer for pointer in self._found.pointers if pointer.purpose == PURPOSE]

    def problems(self) -> Sequence[str]:
        return tuple(self._found.problems.values())

    def why_no_model(self) -> str:
        return why_no_model(self._found)

    def engage(self, models: Sequence[ModelPointer]) -> None:
        from diode.integration.factory import ChoicesFactory, Parameters
        from diode.integration.installation import Installation

        if self._factory is None:
            top_k = self._top_k_configs if self._top_k_configs is not None else settings.top_k()
            parameters = Parameters(
                model_path=None if self._model_path is None else str(self._model_path),
                device=self._device,
                top_k_configs=3 if top_k is None else top_k,
                enable_fallback=self._enable_fallback,
                performance_threshold=self._performance_threshold,
                on_mismatch=self._on_mismatch or settings.on_mismatch(),
                learn=None if self._learn is None else str(self._learn),
            )
            self._factory = ChoicesFactory(parameters)
        self.disengage()  # or else what it finds in place would be its own
        self._installation = Installation.of(self._factory)
        if self._learn is not None:
            self._installation.record_into(self._learn)

    def enable_configs(self, models: Sequence[ModelPointer]) -> tuple[str, ...]:
        if self._installation is None or not any(_PERSISTENT_TMA in pointer.card.templates for pointer in models):
            return ()
        return self._installation.enable_persistent_tma()

    def disengage(self) -> None:
        installation, self._installation = self._installation, None
        if installation is not None:
            installation.take_out()


def create_matmul_integration(
    enable_fallback: bool = True,
    *,
    model_path: str | Path | None = None,
    device: str = "cpu",
    top_k_configs: TopK | None = None,
    performance_threshold: float = 1.1,
    on_mismatch: settings.OnMismatch | None = None,
    learn: str | Path | None = None,
) -> MatmulIntegration:
    """For `register_integration`; the parameters are those of `DiodeInductorChoices`."""
    return MatmulIntegration(
        model_path, device, top_k_configs, enable_fallback, performance_threshold, on_mismatch=on_mismatch, learn=learn
    )
