"""What training minimises, with its gradient: one differentiable path for the public losses and the training loop.

The gradients of the likelihood and of the cross entropy are differences of probabilities. Automatic differentiation
would find the same in several times as many operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates.base import Aggregate, chain_gradient, gradient_in_logits

Objective = Callable[[Tensor, Segments, Tensor], Tensor]
"""From outputs (memberships, width), the memberships of each group and checked observations to one value per group.

The value of a group depends on the outputs of its own members."""


class ValueAndGrad(NamedTuple):
    """The values of an objective, and the gradient of their sum; both are to be multiplied by ``scale``.

    For groups of one size, ``values`` may be those of members, in order, whose sum is that of the groups.
    """

    values: Tensor  # (groups,) or (memberships,)
    grad: Tensor  # (memberships, width)
    scale: float

    def weighted(self, weights: Tensor, segments: Segments) -> ValueAndGrad:
        """Multiply what is of a group by its weight; each value must depend on the outputs of its group alone."""
        values = (self.values.view(len(weights), -1) * weights[:, None]).flatten()
        return ValueAndGrad(values, self.grad.mul_(segments.expand(weights)[:, None]), self.scale)


def negative_log_likelihood(aggregate: Aggregate, log_probs: Tensor, segments: Segments, z: Tensor) -> ValueAndGrad:
    """Return the negative log-likelihood of each group, and its gradient in the logits by Fisher's identity."""
    log_likelihood, posterior = aggregate.e_step(log_probs, segments, z)
    return ValueAndGrad(log_likelihood, gradient_in_logits(posterior, log_probs), -1.0)


def cross_entropy_risk(
    log_probs: Tensor, weights: Tensor, segments: Segments, of_rows: Tensor | None = None
) -> ValueAndGrad:
    """Return the unbiased risk of the cross entropy, and its gradient in the logits.

    Parameters
    ----------
    log_probs
        Log-probabilities of the classes, one row per membership.
    weights
        The posterior of the labels, of the same shape; a constant.
    segments
        The memberships of each group.
    of_rows
        One weight per membership, which multiplies its term; None: all are alike.
    """
    values, grad = weighted_sum(log_probs, weights), gradient_in_logits(weights, log_probs)
    if of_rows is not None:
        values, grad = (values * of_rows).masked_fill_(of_rows == 0, 0), grad.mul_(of_rows[:, None])
    if segments.uniform_size is not None:
        return ValueAndGrad(values, grad, -1 / segments.uniform_size)
    grad.div_(segments.expand(segments.sizes)[:, None])
    return ValueAndGrad(segments.sum(values) / segments.sizes, grad, -1.0)


def weighted_risk(losses: Tensor, weights: Tensor, segments: Segments) -> Tensor:
    """Return ``(1/m) sum_i sum_j weights_ij losses_ij`` of each group, from one row per membership; any loss."""
    return segments.sum(weighted_sum(losses, weights)) / segments.sizes


def weighted_sum(losses: Tensor, weights: Tensor) -> Tensor:
    """Add up the losses of each row, by weight.

    Zero times infinity would be NaN, but a class that is ruled out costs nothing.
    """
    return (losses * weights).masked_fill_(weights == 0, 0).sum(1)


def value_and_grad(objective: Callable[[Tensor], Tensor], outputs: Tensor) -> ValueAndGrad:
    """Return the values of any differentiable objective of the outputs, and the gradient of their sum."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        values = objective(outputs)
        (grad,) = torch.autograd.grad(values.sum(), outputs)
    return ValueAndGrad(values.detach(), grad, 1.0)


class WithGradient(torch.autograd.Function):
    """Let automatic differentiation use a gradient that was written out: values of groups from logits of members."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, segments: Segments, compute: Callable[[Tensor], ValueAndGrad]) -> Tensor:
        """Return one value per group."""
        values, grad, scale = compute(logits)
        ctx.save_for_backward(grad)
        ctx.segments, ctx.scale = segments, scale
        return scale * (values if len(values) == len(segments) else segments.sum(values))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Multiply the gradient that was kept."""
        return chain_gradient(ctx.saved_tensors[0], ctx.scale * grad, ctx.segments), None, None


def proportion_divergence(log_probs: Tensor, groups: Segments, counts: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of observed proportions from the mean prediction of each group.

    ``log_probs`` has one row per membership, ``counts`` one per group.

    Examples
    --------
    >>> log_probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log()
    >>> proportion_divergence(log_probs, Segments.from_sizes([2]), torch.tensor([[2, 0]]))
    tensor([0.6931])
    """
    sizes = groups.sizes[:, None]
    log_mean = sum_probabilities(log_probs, groups) - sizes.to(log_probs.dtype).log()  # (groups, k)
    observed = counts.to(log_probs.dtype) / sizes
    # A class that is not in a group costs nothing, even where its log-probability is without bounds.
    return (torch.xlogy(observed, observed) - observed * log_mean.masked_fill(counts == 0, 0)).sum(1)


def sum_probabilities(log_probs: Tensor, groups: Segments) -> Tensor:
    """Return the log of the summed probabilities of each class: ``(memberships, k)`` to ``(groups, k)``."""
    if groups.uniform_size is not None:
        return log_probs.view(len(groups), groups.uniform_size, -1).logsumexp(1)
    return torch.stack([groups.logsumexp(column) for column in log_probs.unbind(1)], 1)


def match_proportions(logits: Tensor, groups: Segments, counts: Tensor) -> Tensor:
    """Return the same as :func:`proportion_divergence` from logits: an objective."""
    return proportion_divergence(logits.log_softmax(-1), groups, counts)
