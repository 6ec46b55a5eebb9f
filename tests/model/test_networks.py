"""Networks: torch's module and the plain arrays compute the same, and members do not mix."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from diode.model.inference import ArrayNetwork
from diode.model.networks import (
    MatmulTimingModel,
    ResidualTimingModel,
    TimingNetwork,
    build_network,
    split_network,
    stack_networks,
)
from diode.model.spec import NetworkSpec, NetworkType

SPECS = [
    NetworkSpec(type, 11, 16, layers, members)
    for type in get_args(NetworkType)
    for layers in (1, 3)
    for members in (1, 3)
]


def network_of(spec: NetworkSpec, seed: int = 0) -> TimingNetwork:
    torch.manual_seed(seed)
    network = build_network(spec)
    network.normalise_by(torch.randn(200, spec.columns) * 5 + 3, torch.randn(200))
    return network


def arrays_of(network: TimingNetwork) -> ArrayNetwork:
    return ArrayNetwork(network.spec, {name: value.numpy() for name, value in network.state_dict().items()})


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_arrays_compute_what_the_module_does(spec: NetworkSpec) -> None:
    network = network_of(spec)
    features = torch.randn(70, spec.columns) * 20  # far beyond where features are clipped, too
    with torch.no_grad():
        expected = network(features).numpy()
    np.testing.assert_allclose(arrays_of(network)(features.numpy()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_names_every_parameter_with_its_shape(spec: NetworkSpec) -> None:
    state = network_of(spec).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == spec.shapes()


def test_types_are_the_promised_modules() -> None:
    assert isinstance(network_of(SPECS[0]), MatmulTimingModel)
    assert isinstance(network_of(SPECS[-1]), ResidualTimingModel)


@pytest.mark.parametrize("type", ["base", "deep"])
def test_stacked_members_say_what_each_said_alone(type: str) -> None:
    spec = NetworkSpec(type, 5, 8, 2)  # type: ignore[arg-type]
    alone = [network_of(spec, seed) for seed in range(3)]
    for network in alone[1:]:
        network.center.copy_(alone[0].center)
        network.scale.copy_(alone[0].scale)
        network.offset.copy_(alone[0].offset)
    features = torch.randn(9, 5)
    together = stack_networks(alone)(features)
    assert together.shape == (3, 9, 3)
    for network, said in zip(alone, together, strict=True):
        torch.testing.assert_close(network(features)[0], said)


@pytest.mark.parametrize("type", get_args(NetworkType))
def test_what_was_stacked_can_be_taken_apart_and_stacked_again(type: NetworkType) -> None:
    stacked = network_of(NetworkSpec(type, 5, 8, 2, members=3))
    members = split_network(stacked)
    assert [member.spec.members for member in members] == [1, 1, 1]
    again = stack_networks(members).state_dict()
    assert all(torch.equal(again[name], value) for name, value in stacked.state_dict().items())


def test_rows_do_not_influence_one_another() -> None:
    network = arrays_of(network_of(SPECS[-1]))
    features = np.random.default_rng(1).normal(size=(8, 11)).astype(np.float32)
    np.testing.assert_allclose(network(features)[:, 3:5], network(features[3:5]), rtol=1e-4, atol=1e-6)


def test_a_feature_that_was_never_seen_does_not_throw_a_prediction_off() -> None:
    network = arrays_of(network_of(SPECS[0]))
    far = np.full((2, 11), 1e3, np.float32)
    far[1] = 1e30
    outputs = network(far)
    np.testing.assert_array_equal(outputs[:, 0], outputs[:, 1])
