"""Counts of several classes with weights, in groups too large for exact states: belief propagation.

Each class has a factor, the weight of the number of members of that class, and each member a variable, its class. One
pass sends, from each factor to each member, the log-odds that the other members and the weight give to this class.
These messages are exact for independent members, because a factor is a problem of two classes, which
:mod:`unbag._kernels.poisson_binomial` solves: each factor respects its bounds, however unlikely the counts were. Only
the dependence between the counts of different classes is approximated. For the log-likelihood it is that of normal
variables; for posteriors it is negligible unless few members are uncertain, whose most probable counts
:mod:`unbag._kernels.count_paths` adds up.

A message is the common tilt of its class plus a small deviation of the member. Newton's method finds the tilts, which
belief propagation alone would approach slowly.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.logspace import log_softmax, log_sum_others, normalise
from unbag._kernels.poisson_binomial import infer_weighted_counts
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import covariance_of_counts

MAX_PASSES = 40
TOLERANCE = 1e-3
"""Largest difference between the beliefs of a member and of the factors at which a group has converged."""
SLOW = 0.7
"""Ratio of residuals of two passes above which messages move half of the way instead of by Newton's method."""
MIN_VARIANCE = 1e-6
"""Of a count, in members; its inverse is finite."""
BOUND_TOLERANCE = 1e-3
"""Members by which expected counts may be outside of the bounds."""
MAX_SHIFT_STEPS, MAX_SHIFT = 150, 2.0
"""Number and length of the steps of log-probabilities on the way into the bounds."""
NEARLY_SURE = 1e-9
"""Beyond this distance from 0 and 1, the logarithm of the odds of a posterior has too few digits."""


class Messages(NamedTuple):
    """The state of belief propagation after a pass."""

    beliefs: Tensor  # (memberships, k), probabilities of the classes
    sent: Tensor  # (memberships, k), log-odds that each factor sends for the next pass
    log_likelihood: Tensor  # (groups,), by the formula of Bethe
    residual: Tensor  # (groups,), largest difference between the beliefs of members and of factors
    tilt: Tensor  # (groups, k), the common part of what is sent
    missing: Tensor  # (groups, k), counts that factors expect, minus those that members expect


def infer_counts_by_messages(
    log_probs: Tensor, segments: Segments, log_weights: Tensor, tilt: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the log of the sum of weights times probabilities, the posterior, and the residual.

    The result is reliable where the residual is at most ``TOLERANCE``. Log-weights are concave; the tilt is the result
    of :func:`find_weighted_tilt`.
    """
    total, residual = log_probs.new_empty(2, len(segments))
    posterior = torch.empty_like(log_probs)
    which, rows = (torch.arange(n, device=log_probs.device) for n in (len(segments), len(log_probs)))
    messages = segments.expand(tilt)
    smallest = torch.full_like(total, float("inf"))
    for _ in range(MAX_PASSES):
        state = pass_messages(log_probs, segments, log_weights, messages)
        covariance, precision = _moments(segments, log_weights, state)
        unit = torch.eye(tilt.shape[1]).to(tilt)
        system = unit + precision[..., None] * covariance
        log_determinant = torch.linalg.slogdet(system).logabsdet
        independent = (covariance.diagonal(dim1=1, dim2=2) * precision).log1p().sum(1)
        total[which] = state.log_likelihood + (independent - log_determinant) / 2
        residual[which], posterior[rows] = state.residual, state.beliefs
        if not bool((moving := ~(state.residual <= TOLERANCE)).any()):
            break
        step = torch.linalg.solve_ex(system, (state.tilt - tilt + precision * state.missing)[..., None])[0][..., 0]
        converging = (state.residual < SLOW * smallest)[:, None]
        smallest = smallest.minimum(state.residual)
        deviation = torch.lerp(messages - segments.expand(tilt), state.sent - segments.expand(state.tilt), 0.5)
        tilt = torch.where(converging, tilt + step, (tilt + state.tilt) / 2)
        messages = segments.expand(tilt) + deviation
        if not bool(moving.all()):
            inside, segments = segments.take(moving.nonzero().flatten())
            log_probs, messages, rows = log_probs[inside], messages[inside], rows[inside]
            log_weights, tilt, which, smallest = log_weights[moving], tilt[moving], which[moving], smallest[moving]
    return total, posterior, residual


def pass_messages(log_probs: Tensor, segments: Segments, log_weights: Tensor, messages: Tensor) -> Messages:
    """Return the beliefs that messages lead to, and the messages of the next pass.

    Messages are the log-odds that the factor of each class sends to each member, (memberships, k).
    """
    n_classes = log_probs.shape[1]
    scores = log_probs + messages
    # What a factor receives excludes what it has sent.
    odds = (log_probs - log_sum_others(scores)).t().contiguous()  # (k, memberships)
    factors = _Factors(log_weights)
    by_class = Segments.from_sizes(segments.sizes.repeat(n_classes))
    flat = odds.flatten()
    totals, yes, tilt = infer_weighted_counts(logsigmoid(-flat), logsigmoid(flat), by_class, factors.bounds, factors)
    inner = (yes > NEARLY_SURE) & (yes < 1 - NEARLY_SURE)
    sent = torch.where(inner, yes.logit() - flat, by_class.expand(tilt)).view_as(odds).t().contiguous()
    beliefs = scores.softmax(1)
    difference = yes.view_as(odds).t() - beliefs
    residual = segments.amax(difference.abs().amax(1))
    edges = torch.logaddexp(logsigmoid(-odds), logsigmoid(odds) + messages.t()).sum(0)
    log_likelihood = totals.view(n_classes, -1).sum(0) + segments.sum(scores.logsumexp(1) - edges)
    tilt = tilt.view(n_classes, -1).t()
    return Messages(beliefs, sent, log_likelihood, residual, tilt, segments.sum(difference))


def _moments(segments: Segments, log_weights: Tensor, state: Messages) -> tuple[Tensor, Tensor]:
    """Return the covariance of the counts of independent members, and the precision of the weights of each class.

    The precision is that of a normal factor which reduces the variance of a count as much as the weights do.
    """
    covariance = covariance_of_counts(state.beliefs, segments)
    mean = segments.sum(state.beliefs) + state.missing
    counts = torch.arange(log_weights.shape[2]).to(mean)
    distance = (counts - mean[..., None]).square()
    scores = -distance / (2 * covariance.diagonal(dim1=1, dim2=2)[..., None].clamp_min(0.1))
    both = torch.stack([scores, scores + log_weights - state.tilt[..., None] * counts])
    shares = normalise(both)[1]
    variance = (shares @ counts.square() - (shares @ counts).square()).clamp_min(MIN_VARIANCE)
    return covariance, (1 / variance[1] - 1 / variance[0]).clamp_min(0.0)


class _Factors:
    """Log-weights of the counts of each class and group, one class after the other, with their bounds."""

    def __init__(self, log_weights: Tensor) -> None:
        self._table = log_weights.transpose(0, 1).flatten(0, 1)  # (k * groups, counts)
        possible = self._table > float("-inf")
        self._most = possible.shape[1] - 1
        low = possible.int().argmax(1)
        high = self._most - possible.flip(1).int().argmax(1)
        self.bounds = low.double(), high.double()

    def __call__(self, counts: Tensor) -> Tensor:
        outside = (counts < 0) | (counts > self._most)
        places = counts.nan_to_num(0.0).clamp(0, self._most).long()
        return self._table.gather(1, places).masked_fill(outside, float("-inf"))


def move_into_bounds(posterior: Tensor, segments: Segments, log_weights: Tensor) -> Tensor:
    """Shift the log-probabilities of classes until the expected counts of each group are within the possible counts."""
    n_groups, n_classes = log_weights.shape[:2]
    low, high = (bound.view(n_classes, n_groups).t() for bound in _Factors(log_weights).bounds)
    for _ in range(MAX_SHIFT_STEPS):
        expected = segments.sum(posterior)
        outside = (expected < low - BOUND_TOLERANCE) | (expected > high + BOUND_TOLERANCE)
        if not bool(outside.any()):
            break
        # Newton's method for the shift of the log-probabilities of each class, as if it were the only one.
        variance = segments.sum(posterior * (1 - posterior)).clamp_min(1e-300)
        shift = ((expected.clamp(low, high) - expected) / variance).clamp(-MAX_SHIFT, MAX_SHIFT)
        posterior = log_softmax(posterior.log() + segments.expand(shift.masked_fill(~outside, 0.0))).exp()
    return posterior
