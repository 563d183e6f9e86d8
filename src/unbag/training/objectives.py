"""What a step minimises, and its slope in the outputs of the model.

The slopes of Algorithm 1 with cross entropy are written out. They are differences of probabilities, which automatic
differentiation would find in several times as many operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate
from unbag.segments import Segments

Objective = Callable[[Tensor, Segments, Tensor], Tensor]
"""From outputs (memberships, width), groups of them and checked observations to one value per group."""


class Slope(NamedTuple):
    """The sum of an objective over groups, and its slope: both are to be multiplied by ``scale``, which costs nothing.

    For groups of one size, ``values`` may be those of members, in order, whose sum is that of the groups.
    """

    values: Tensor  # (groups,) or (memberships,)
    slope: Tensor  # (memberships, width)
    scale: float


def likelihood(aggregate: Aggregate, log_probs: Tensor, groups: Segments, z: Tensor) -> Slope:
    """Return the negative log-likelihood, with its slope in the logits by Fisher's identity."""
    log_likelihood, posterior = aggregate.checked_infer(log_probs, groups, z)
    return Slope(log_likelihood, posterior - log_probs.exp(), -1.0)


def cross_entropy(aggregate: Aggregate, log_probs: Tensor, known: Tensor, groups: Segments, z: Tensor) -> Slope:
    """Return the unbiased risk of the cross entropy, with its slope in the logits.

    Parameters
    ----------
    aggregate
        What was observed.
    log_probs
        Log-probabilities of the classes, one row per membership.
    known
        Those from which weights come: the same, or what they were at an earlier visit.
    groups, z
        Which memberships belong together, and what was observed of them.
    """
    _, weights = aggregate.checked_infer(known, groups, z)
    # Zero times infinity would be NaN: a class that is ruled out costs nothing.
    values = (log_probs * weights).masked_fill_(weights == 0, 0).sum(1)  # (memberships,)
    slope = weights - log_probs.exp()
    if groups.uniform_size is not None:
        return Slope(values, slope, -1 / groups.uniform_size)
    slope.div_(groups.expand(groups.sizes)[:, None])
    return Slope(groups.sum(values) / groups.sizes, slope, -1.0)


def differentiate(objective: Callable[[Tensor], Tensor], outputs: Tensor) -> Slope:
    """Return the values of any differentiable objective, and the slope of their sum."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        values = objective(outputs)
        (slope,) = torch.autograd.grad(values.sum(), outputs)
    return Slope(values.detach(), slope, 1.0)
