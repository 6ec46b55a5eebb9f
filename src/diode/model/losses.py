"""What a network is trained for: right times near the front, each problem's choices in order, honest doubt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class LossWeights:
    """How much each part counts beside the regression of times."""

    order: float = 0.5
    doubt: float = 0.05
    failure: float = 0.2
    near: float = 0.5
    """Rows weigh exp(-log regret / near) more than the slowest: a model need not tell bad from worse."""
    sharpness: float = 0.05
    """Log regret at which a choice's share in the listwise target has fallen to 1/e."""
    temperature: float = 0.1
    """Of the predicted order, in the same unit."""


@dataclass(frozen=True)
class Batch:
    """Lists of choices, one problem a line; `there` is False where a line ends early."""

    features: Tensor
    log_ratio: Tensor
    log_regret: Tensor
    failed: Tensor
    there: Tensor


def loss_of(outputs: Tensor, batch: Batch, weights: LossWeights) -> Tensor:
    """`outputs` is `[problems, choices, OUTPUTS]`."""
    predicted, log_sigma, failure = outputs.unbind(-1)
    timed = batch.there & ~batch.failed
    target = torch.where(timed, batch.log_ratio, 0.0)
    regret = torch.where(timed, batch.log_regret, 0.0)

    weight = timed * (0.1 + torch.exp(-regret / weights.near))
    errors = functional.smooth_l1_loss(predicted, target, beta=0.3, reduction="none")
    regression = 3.0 * (weight * errors).sum() / weight.sum().clamp(min=1.0)

    share = torch.exp(-regret / weights.sharpness) * timed
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-9)
    scores = (-predicted / weights.temperature).masked_fill(~timed, -1e9)
    order = -(share * functional.log_softmax(scores, -1)).sum(-1).mean()

    # A Laplace distribution: few errors are many times the usual one, and a Gaussian would believe only those.
    residual = (predicted - target).abs().detach()
    doubt = (weight * (log_sigma + residual * torch.exp(-log_sigma))).sum() / weight.sum().clamp(min=1.0)

    judged = functional.binary_cross_entropy_with_logits(failure, batch.failed.to(failure.dtype), reduction="none")
    illegal = (judged * batch.there).sum() / batch.there.sum()
    total: Tensor = regression + weights.order * order + weights.doubt * doubt + weights.failure * illegal
    return total
