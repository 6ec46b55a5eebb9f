"""The networks. One module holds all members of an ensemble, its parameters stacked in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from diode.model.spec import CLIP, NORM_EPSILON, OUTPUTS, NetworkSpec, NetworkType


class StackedLinear(nn.Module):
    """One linear layer for each member."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, values, self.weight)


class TimingNetwork(nn.Module):
    """Features to `OUTPUTS`, with its own normalisation: it cannot be fed what was scaled otherwise."""

    center: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.register_buffer("center", torch.zeros(spec.columns))
        self.register_buffer("scale", torch.ones(spec.columns))
        self.register_buffer("offset", torch.zeros(1))
        self.input = StackedLinear(spec.members, spec.columns, spec.hidden)
        self.head = StackedLinear(spec.members, spec.hidden, OUTPUTS)

    def normalise_by(self, features: Tensor, log_ratio: Tensor) -> None:
        """Takes center and scale from rows of the kind that will be trained on."""
        self.center.copy_(features.mean(0))
        self.scale.copy_(1.0 / (features.std(0, unbiased=False) + 1e-6))
        self.offset.fill_(log_ratio.mean())

    def forward(self, features: Tensor) -> Tensor:
        """`[rows, columns]` to `[members, rows, OUTPUTS]`."""
        values = ((features - self.center) * self.scale).clamp(-CLIP, CLIP).expand(self.spec.members, -1, -1)
        out = self.head(self.hidden(functional.silu(self.input(values))))
        return torch.cat((out[..., :1] + self.offset, out[..., 1:]), dim=-1)

    def hidden(self, values: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say what lies between its input and its head")


class MatmulTimingModel(TimingNetwork):
    """The model type `base`: a plain multilayer perceptron."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(spec)
        self.layers = nn.ModuleList(
            StackedLinear(spec.members, spec.hidden, spec.hidden) for _ in range(spec.layers - 1)
        )

    def hidden(self, values: Tensor) -> Tensor:
        for layer in self.layers:
            values = functional.silu(layer(values))
        return values


class ResidualTimingModel(TimingNetwork):
    """The model type `deep`: each block of two layers adds to what the ones before it found."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(spec)
        self.expand = nn.ModuleList(StackedLinear(spec.members, spec.hidden, spec.hidden) for _ in range(spec.layers))
        self.reduce = nn.ModuleList(StackedLinear(spec.members, spec.hidden, spec.hidden) for _ in range(spec.layers))

    def hidden(self, values: Tensor) -> Tensor:
        for expand, reduce in zip(self.expand, self.reduce, strict=True):
            normalised = functional.layer_norm(values, values.shape[-1:], eps=NORM_EPSILON)
            values = values + reduce(functional.silu(expand(normalised)))
        return values


_TYPES: Final[dict[NetworkType, type[TimingNetwork]]] = {"base": MatmulTimingModel, "deep": ResidualTimingModel}


def build_network(spec: NetworkSpec) -> TimingNetwork:
    return _TYPES[spec.type](spec)


def split_network(stacked: TimingNetwork) -> list[TimingNetwork]:
    """Its members as networks of their own: `stack_networks` of them is the same again."""
    spec = msgspec.structs.replace(stacked.spec, members=1)
    shared = {name for name, _ in stacked.named_buffers()}
    members = []
    for number in range(stacked.spec.members):
        member = build_network(spec)
        state = stacked.state_dict().items()
        member.load_state_dict({n: value if n in shared else value[number : number + 1] for n, value in state})
        members.append(member)
    return members


def stack_networks(networks: Sequence[TimingNetwork]) -> TimingNetwork:
    """One network with the members of all, which share spec and normalisation."""
    spec = msgspec.structs.replace(networks[0].spec, members=sum(network.spec.members for network in networks))
    stacked = build_network(spec)
    states = [network.state_dict() for network in networks]
    shared = {name for name, _ in stacked.named_buffers()}
    together = {
        name: states[0][name] if name in shared else torch.cat([state[name] for state in states]) for name in states[0]
    }
    stacked.load_state_dict(together)
    return stacked
