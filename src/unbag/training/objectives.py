"""What a step minimises: one value for each group, and the slope of their sum in the outputs of the model.

The slopes of Algorithm 1 with cross entropy are written out. They are differences of probabilities, which automatic
differentiation would find in several times as many operations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate
from unbag.groups import Groups
from unbag.kernels.logspace import class_by_class, log_softmax
from unbag.kernels.segments import spread, sum_per_group

Objective = Callable[[Tensor, Groups, Tensor], Tensor]
"""From outputs (memberships, width), groups of them and checked observations to one value per group."""


def likelihood(aggregate: Aggregate, logits: Tensor, groups: Groups, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the negative log-likelihood of each group, and its slope, by Fisher's identity."""
    log_probs = log_softmax(class_by_class(logits))
    log_likelihood, posterior = aggregate.checked_infer(log_probs, groups, z)
    return log_likelihood.neg(), log_probs.exp_().sub_(posterior)


def cross_entropy(
    aggregate: Aggregate, logits: Tensor, known: Tensor, groups: Groups, z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the unbiased risk of the cross entropy for each group, and its slope.

    Parameters
    ----------
    aggregate
        What was observed.
    logits
        One row per membership.
    known
        The logits from which weights come: the same, or those of an earlier visit.
    groups, z
        Which memberships belong together, and what was observed of them.
    """
    log_probs = log_softmax(class_by_class(logits))
    others = log_probs if known is logits else log_softmax(class_by_class(known))
    _, weights = aggregate.checked_infer(others, groups, z)
    # Zero times infinity would be NaN: a class that is ruled out costs nothing.
    terms = (log_probs * weights).masked_fill_(weights == 0, 0).sum(1)
    values = sum_per_group(terms, groups)
    slope = log_probs.exp_().sub_(weights)
    if groups.uniform_size is not None:
        return values.mul_(-1 / groups.uniform_size), slope.mul_(1 / groups.uniform_size)
    return values.div_(groups.sizes).neg_(), slope.div_(spread(groups.sizes, groups)[:, None])


def with_slope(objective: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of any differentiable objective, and the slope of their sum."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        values = objective(outputs)
        (slope,) = torch.autograd.grad(values.sum(), outputs)
    return values.detach(), slope
