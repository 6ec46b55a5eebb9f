"""A trained model, ready to predict: loaded when it is first needed, checked, on CPU or GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.errors import FileFormatError, UsageError
from diode.features import COLUMNS, SCHEMA_VERSION, ChoiceTable, feature_matrix
from diode.model.card import ModelCard, card_path, read_card
from diode.model.inference import ArrayNetwork
from diode.model.prediction import Prediction, TimingModel, prediction_of
from diode.model.spec import NetworkSpec
from diode.model.weights import decode_tensors
from diode.storage.flaws import naming_file
from diode.types import Choice, Hardware, MMShape

SCREEN_PREFIX: Final = "screen."
_REFINED: Final = 128
"""So many of a screen's best choices are looked at by the large network, and besides them all that have no tile."""
_IS_TILED, _IS_PERSISTENT = COLUMNS.index("is_tiled"), COLUMNS.index("is_persistent")

Network = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class ModelWrapper:
    """One artifact: weights and the card beside them.

    Nothing is read before it is needed. `device` and `compile` are for work in bulk; the choices of one problem are
    ranked fastest by the default, plain arrays on the CPU, which is also safe inside another compile.
    """

    def __init__(self, path: str | Path, device: str = "cpu", *, compile: bool = False) -> None:
        self.path = Path(path)
        self.device = device
        self._compile = compile

    @cached_property
    def card(self) -> ModelCard:
        card = read_card(card_path(self.path))
        if card.feature_schema != SCHEMA_VERSION or card.columns != COLUMNS:
            others = ", ".join(sorted(set(card.columns) ^ set(COLUMNS))[:5]) or "in another order"
            raise FileFormatError(
                f"{card_path(self.path)}: was trained on other features (version {card.feature_schema}) than this "
                f"diode computes (version {SCHEMA_VERSION}; not the same: {others}): train it again, or install the "
                "diode that it was trained with"
            )
        return card

    @property
    def digest(self) -> str:
        """Equal for equal weights."""
        return self.card.weights_sha256

    @cached_property
    def model(self) -> TimingModel:
        card = self.card
        if card.network is None:
            from diode.model.gbdt import BoostedTrees

            return BoostedTrees.decode(self.path, self._content(), card.sigma_scale)
        return network_model(card, self.parameters(), card.sigma_scale, self._network)

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Those of the network and, behind `SCREEN_PREFIX`, of the screen; read anew at each call."""
        card = self.card
        if card.network is None:
            raise UsageError(f"{self.path}: a model of type {card.type} has no network")
        shapes = card.network.shapes()
        if card.screen is not None:
            shapes |= {SCREEN_PREFIX + name: shape for name, shape in card.screen.shapes().items()}
        return decode_tensors(self.path, self._content(), shapes)

    def _content(self) -> bytes:
        with naming_file(self.path):
            content = self.path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.card.weights_sha256:
            raise FileFormatError(
                f"{self.path}: is not the file that {card_path(self.path).name} describes; both belong together"
            )
        return content

    def predict(self, hardware: Hardware, problem: MMShape, choices: Sequence[Choice] | ChoiceTable) -> Prediction:
        """One entry per choice, in their order."""
        table = choices if isinstance(choices, ChoiceTable) else ChoiceTable.of(choices)
        return self.model.predict_choices(feature_matrix(hardware, problem, table))

    def _network(self, spec: NetworkSpec, parameters: dict[str, NDArray[np.float32]]) -> Network:
        if self.device == "cpu" and not self._compile:
            return ArrayNetwork(spec, parameters)
        return _torch_network(spec, parameters, self.device, compile=self._compile)


class NetworkModel:
    """A network and, before it, the screen that spares it the choices that are out of the question."""

    def __init__(self, network: Network, screen: Network | None, sigma_scale: float) -> None:
        self._network = network
        self._screen = screen
        self._sigma_scale = sigma_scale

    def predict(self, features: NDArray[np.float32]) -> Prediction:
        return prediction_of(self._network(features), self._sigma_scale)

    def predict_choices(self, features: NDArray[np.float32]) -> Prediction:
        if self._screen is None or len(features) <= _REFINED:
            return self.predict(features)
        screened = prediction_of(self._screen(features), 1.0)
        order = screened.order()
        # Few, and unlike all others: of them a screen knows least.
        untiled = features[:, _IS_TILED] + features[:, _IS_PERSISTENT] == 0
        picked = np.union1d(order[:_REFINED], np.flatnonzero(untiled))
        refined = self.predict(features[picked])
        # What was not looked at closely must not overtake what was.
        log_ratio = np.maximum(screened.log_ratio, np.float32(refined.log_ratio.max()))
        sigma, failure = screened.sigma.copy(), screened.failure.copy()
        log_ratio[picked], sigma[picked], failure[picked] = refined.log_ratio, refined.sigma, refined.failure
        return Prediction(log_ratio, sigma, failure)


def network_model(
    card: ModelCard,
    parameters: Mapping[str, NDArray[np.float32]],
    sigma_scale: float,
    build: Callable[[NetworkSpec, dict[str, NDArray[np.float32]]], Network] = ArrayNetwork,
) -> NetworkModel:
    """A model of the networks that a card describes, with these parameters."""
    assert card.network is not None
    network = build(card.network, {name: parameters[name] for name in card.network.shapes()})
    if card.screen is None:
        return NetworkModel(network, None, sigma_scale)
    screen = build(card.screen, {name: parameters[SCREEN_PREFIX + name] for name in card.screen.shapes()})
    return NetworkModel(network, screen, sigma_scale)


def _torch_network(
    spec: NetworkSpec, parameters: dict[str, NDArray[np.float32]], device: str, *, compile: bool
) -> Network:
    import torch

    from diode.model.networks import build_network

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device {device!r}: no CUDA device can be used here; use cpu")
    network = build_network(spec)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
    network.to(device).eval()
    run = torch.compile(network, dynamic=True) if compile else network

    def call(features: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            outputs: NDArray[np.float32] = run(torch.from_numpy(features).to(device)).cpu().numpy()
        return outputs

    return call
