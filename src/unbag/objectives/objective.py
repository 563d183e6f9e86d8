"""Values and gradients of objectives, for the public losses and the training loop.

The gradients of the likelihood and of the cross entropy are differences of probabilities; automatic differentiation
would need several times as many operations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates.base import Aggregate, chain_gradient, gradient_in_logits

Objective = Callable[[Tensor, Segments, Tensor], Tensor]
"""From outputs (memberships, width), memberships of each group and validated observations to one value per group.

The value of a group depends only on the outputs of its members."""


class ValueAndGrad(NamedTuple):
    """Values of an objective and the gradient of their sum, both without the factor ``scale``.

    For groups of one size, ``values`` may be those of members, to be added up in each group.
    """

    values: Tensor  # (groups,) or (memberships,)
    grad: Tensor  # (memberships, width)
    scale: float

    def weighted(self, weights: Tensor, segments: Segments) -> "ValueAndGrad":
        """Multiply values and gradients by the weights of groups."""
        values = (self.values.view(len(weights), -1) * weights[:, None]).flatten()
        return ValueAndGrad(values, self.grad.mul_(segments.expand(weights)[:, None]), self.scale)


def negative_log_likelihood(aggregate: Aggregate, log_probs: Tensor, segments: Segments, z: Tensor) -> ValueAndGrad:
    """Return the negative log-likelihood of each group, and its gradient in the logits by Fisher's identity."""
    log_likelihood, posterior = aggregate.e_step(log_probs, segments, z)
    return ValueAndGrad(log_likelihood, gradient_in_logits(posterior, log_probs), -1.0)


def cross_entropy_risk(
    log_probs: Tensor, weights: Tensor, segments: Segments, member_weights: Tensor | None = None
) -> ValueAndGrad:
    """Return the unbiased risk of the cross entropy, and its gradient in the logits.

    Log-probabilities and weights, which are constants, are (memberships, k), the factors of terms (memberships,).
    """
    values, grad = weighted_sum(log_probs, weights), gradient_in_logits(weights, log_probs)
    if member_weights is not None:
        values = (values * member_weights).masked_fill_(member_weights == 0, 0)
        grad.mul_(member_weights[:, None])
    if segments.uniform_size is not None:
        return ValueAndGrad(values, grad, -1 / segments.uniform_size)
    grad.div_(segments.expand(segments.sizes)[:, None])
    return ValueAndGrad(segments.sum(values) / segments.sizes, grad, -1.0)


def weighted_risk(losses: Tensor, weights: Tensor, segments: Segments) -> Tensor:
    """Return ``(1/m) sum_i sum_j weights_ij losses_ij`` of each group, from the losses of memberships."""
    return segments.sum(weighted_sum(losses, weights)) / segments.sizes


def weighted_sum(losses: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the losses of each row, where weights of zero also cancel infinite losses."""
    return (losses * weights).masked_fill_(weights == 0, 0).sum(1)


def value_and_grad(objective: Callable[[Tensor], Tensor], outputs: Tensor) -> ValueAndGrad:
    """Return the values of a differentiable objective of the outputs, and the gradient of their sum."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        values = objective(outputs)
        (grad,) = torch.autograd.grad(values.sum(), outputs)
    return ValueAndGrad(values.detach(), grad, 1.0)


class WithGradient(torch.autograd.Function):
    """Compute values of groups from logits of members, with an explicit gradient."""

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
        """Multiply the saved gradient."""
        return chain_gradient(ctx.saved_tensors[0], ctx.scale * grad, ctx.segments), None, None


def proportion_divergence(log_probs: Tensor, groups: Segments, counts: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of observed proportions from the mean prediction of each group.

    ``log_probs`` has one row per membership, ``counts`` one per group.
    """
    sizes = groups.sizes[:, None]
    log_mean = sum_probabilities(log_probs, groups) - sizes.to(log_probs.dtype).log()  # (groups, k)
    observed = counts.to(log_probs.dtype) / sizes
    # Classes with a count of zero have no term, even if their log-probability is -inf.
    return (torch.xlogy(observed, observed) - observed * log_mean.masked_fill(counts == 0, 0)).sum(1)


def sum_probabilities(log_probs: Tensor, groups: Segments) -> Tensor:
    """Return the log of the summed probabilities of each class: ``(memberships, k)`` to ``(groups, k)``."""
    if groups.uniform_size is not None:
        return log_probs.view(len(groups), groups.uniform_size, -1).logsumexp(1)
    return torch.stack([groups.logsumexp(column) for column in log_probs.unbind(1)], 1)


def match_proportions(logits: Tensor, groups: Segments, counts: Tensor) -> Tensor:
    """Return :func:`proportion_divergence` from logits, as an objective."""
    return proportion_divergence(logits.log_softmax(-1), groups, counts)
