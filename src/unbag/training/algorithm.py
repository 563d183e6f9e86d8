"""Algorithm 1 of the paper: what one step minimises, and its gradient in the outputs of the model.

The first epochs are a warm-up by the likelihood. After it every step is one of expectation-maximisation:

- E-step: the posterior of the labels of each group, given what was observed of it, from what the model says now or,
  with memory, from what it said when the group was last visited.
- M-step: the gradient of the loss of every label, weighted by that posterior.

Each function takes the outputs of the model, one row per membership, and returns the log-probabilities of the classes,
which the memory keeps for the next visit, and what is minimised.
"""

from __future__ import annotations

from torch import Tensor

from unbag._kernels.logspace import class_major, log_softmax
from unbag._kernels.segments import Segments
from unbag.aggregates.base import Aggregate
from unbag.objectives.losses import Loss, cross_entropy
from unbag.objectives.objective import (
    Objective,
    ValueAndGrad,
    cross_entropy_risk,
    negative_log_likelihood,
    value_and_grad,
    weighted_risk,
)


def warm_up(aggregate: Aggregate, segments: Segments, outputs: Tensor, z: Tensor) -> tuple[Tensor, ValueAndGrad]:
    """Minimise the negative log-likelihood of the observations."""
    log_probs = log_softmax(class_major(outputs))
    return log_probs, negative_log_likelihood(aggregate, log_probs, segments, z)


def expectation_maximisation(
    loss: Loss, aggregate: Aggregate, segments: Segments, outputs: Tensor, z: Tensor, *memory: Tensor
) -> tuple[Tensor, ValueAndGrad]:
    """Minimise the unbiased risk; ``memory`` are the log-probabilities of the last visit, or nothing."""
    log_probs = log_softmax(class_major(outputs))
    known = memory[0] if memory else log_probs
    _, weights = aggregate.likelihood_and_posterior(known, segments, z)  # E-step
    weights = weights.to(log_probs.dtype)
    if loss is cross_entropy:  # M-step
        return log_probs, cross_entropy_risk(log_probs, weights, segments)
    return log_probs, value_and_grad(lambda outputs: weighted_risk(loss(outputs), weights, segments), outputs)


def own_objective(
    objective: Objective, aggregate: Aggregate, segments: Segments, outputs: Tensor, z: Tensor
) -> tuple[Tensor, ValueAndGrad]:
    """Minimise another objective in place of these, for other methods; the aggregate has no part in it."""
    return outputs, value_and_grad(lambda outputs: objective(outputs, segments, z), outputs)
