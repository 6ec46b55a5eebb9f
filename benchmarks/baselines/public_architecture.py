"""The architecture of the public package 0.1, trained here on the same data: six layers of 256 on twelve logarithms.

It sees seven facts of the problem and five of the config. A library kernel has no config and is given zeros;
layouts, bias, and whether a template is persistent are not told to it, as in the original. Its inputs are standardised,
which the original left out, and it learns for as long as its loss on problems left out falls.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from diode.features.table import LIBRARY, ChoiceTable
from diode.model.evaluation import Order, Ranker
from diode.model.examples import split_by_twins
from diode.model.truth import MeasuredProblem, Truth
from diode.types import MMShape
from diode.types.dtypes import item_bytes

_HIDDEN, _LAYERS, _INPUTS = 256, 6, 12
_ROWS = 1024


def train_public_architecture(truth: Truth, seed: int = 0, epochs: int = 30, patience: int = 6) -> Ranker:
    torch.manual_seed(seed)
    features = [_features(measured.problem, truth.table.take(measured.choice_ids)) for measured in truth.problems]
    rows = torch.from_numpy(np.concatenate(features))
    times = torch.from_numpy(np.log(np.concatenate([m.time_us for m in truth.problems])).astype(np.float32))
    counts = [len(measured.choice_ids) for measured in truth.problems]
    left_out = torch.from_numpy(np.repeat(split_by_twins(truth, 8, seed) == 0, counts))
    timed = ~times.isnan()
    training, judging = (timed & ~left_out).nonzero()[:, 0], (timed & left_out).nonzero()[:, 0]
    center, scale, middle = rows[training].mean(0), rows[training].std(0) + 1e-6, times[training].mean()
    rows, times = (rows - center) / scale, times - middle
    network = _network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, best_loss, since_best = copy.deepcopy(network.state_dict()), float("inf"), 0
    for _ in range(epochs):
        for picked in training[torch.randperm(len(training))].split(_ROWS):
            optimizer.zero_grad()
            functional.mse_loss(network(rows[picked])[:, 0], times[picked]).backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            loss = float(functional.mse_loss(network(rows[judging])[:, 0], times[judging]))
        since_best += 1
        if loss < best_loss:
            best, best_loss, since_best = copy.deepcopy(network.state_dict()), loss, 0
        if since_best >= patience:
            break
    network.load_state_dict(best)

    def rank(truth: Truth, measured: MeasuredProblem) -> Order:
        inputs = torch.from_numpy(_features(measured.problem, truth.table.take(measured.choice_ids)))
        with torch.no_grad():
            predicted = network((inputs - center) / scale)[:, 0]
        return np.argsort(predicted.numpy(), kind="stable")

    return rank


def _network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(_LAYERS):
        layers += [nn.Linear(_HIDDEN if number else _INPUTS, _HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(_HIDDEN, 1))


def _features(problem: MMShape, table: ChoiceTable) -> NDArray[np.float32]:
    sizes = [problem.B, problem.M, problem.N, problem.K]
    widths = [item_bytes(operand.dtype) for operand in (problem.a, problem.b, problem.out)]
    facts = np.log(np.maximum(np.array([*sizes, *widths], dtype=np.float64), 1))
    config = np.log(
        np.maximum(np.stack([table.block_m, table.block_n, table.block_k, table.stages, table.warps], axis=1), 1)
    )
    config[table.kind == LIBRARY] = 0
    return np.concatenate([np.tile(facts, (len(table), 1)), config], axis=1).astype(np.float32)
