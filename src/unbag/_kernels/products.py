"""Likelihood and posterior of small groups from products of probabilities, which are faster than sums of logarithms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MIN_LIKELIHOOD = 1e-18
"""Likelihood above which terms that underflow, even in float32, are negligible."""


def infer_products(log_probs: Tensor, n_groups: int, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor] | None:
    """Compute the log-likelihood of each group and the posterior of its members; None where products underflow.

    Parameters
    ----------
    log_probs
        Log-probabilities of the classes, one row per membership.
    n_groups
        Number of groups, all of the same size.
    weigh
        From probabilities, (members, classes, groups), to the probability of the observation for each label of each
        member, marginalised over the other members.

    Examples
    --------
    >>> equal = infer_products(torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log(), 1, lambda probs: probs.flip(0))
    >>> [table.exp() for table in equal[:1]], equal[1]
    ([tensor([0.5000])], tensor([[0.9000, 0.1000],
            [0.9000, 0.1000]]))
    """
    k = log_probs.shape[1]
    by_class = log_probs.view(n_groups, -1, k).permute(1, 2, 0)
    probs = torch.exp(by_class, out=torch.empty_like(by_class, memory_format=torch.contiguous_format))
    joint = weigh(probs) * probs
    total = joint.sum(1, keepdim=True)
    likelihood = total[0, 0]
    if not bool(likelihood.amin() > MIN_LIKELIHOOD):  # also for NaN
        return None
    return likelihood.log(), joint.div_(total).permute(1, 2, 0).reshape(k, -1).t()


def sum_others(values: Tensor) -> Tensor:
    """Compute for each class of (..., classes, groups) the sum of all other classes, without cancellation.

    Where a class has most of the sum, a difference would lose digits; there the others are added up.

    Examples
    --------
    >>> sum_others(torch.tensor([[1.0], [1e-9], [2e-9]]))
    tensor([[3.0000e-09],
            [1.0000e+00],
            [1.0000e+00]])
    """
    total = values.sum(-2, keepdim=True)
    large = values > 0.5 * total
    return torch.where(large, values.masked_fill(large, 0).sum(-2, keepdim=True), total - values)
