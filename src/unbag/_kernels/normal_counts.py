"""Weighted counts of several classes in groups too large for exact states: expectation propagation.

The vector of counts is approximated by a normal distribution, with the mean and covariance of members whose
log-probabilities are shifted by a common tilt per class. The weights of each class, a function of its count, are
replaced by a normal factor ``exp(r c - q c^2 / 2)`` that leads to the same mean and variance, class by class until
convergence; for normal noise the factor adds the variance of the noise. The tilt is updated so that the tilted mean is
the mean given all weights: the normal distribution is then evaluated at its centre, however unlikely the counts were.
The posterior of a member has the second-order correction of :mod:`unbag._kernels.saddle_point`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unbag._kernels.logspace import class_major, log_softmax, normalise
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import to_covariance_

# With this variance, the largest value of a normal density is one, as of a probability.
MIN_VARIANCE = 1 / (2 * math.pi)
# Below this variance, integers can miss the peak of a normal density.
MIN_SPREAD = 0.25
MAX_STEPS = 300
# Change of expected counts, in members, at convergence; the error of the total, which is stationary, is far smaller.
TOLERANCE = 1e-5
# Variance, and distance from the ends in standard deviations, above which sums over integers equal integrals.
WIDE, FAR = 2.0, 9.0
# Change of expected counts, in members, after the last step, above which there is no result.
MAX_CHANGE = 0.5


class Members(NamedTuple):
    """Rows of members, each of which may represent several equal members."""

    log_probs: Tensor  # (rows, k), with columns contiguous in memory
    segments: Segments  # the rows of each group
    counts: Tensor | None  # (rows,), the number of members of each row; None for one

    def take(self, which: Tensor) -> Members:
        """Select groups."""
        rows, segments = self.segments.take(which)
        return Members(class_major(self.log_probs[rows]), segments, None if self.counts is None else self.counts[rows])


class Weights(NamedTuple):
    """Log-weights of the counts that are possible."""

    log_weights: Tensor  # (groups, k, width)
    counts: Tensor  # (groups, k, width), the counts themselves
    largest: int  # the largest count

    def take(self, which: Tensor) -> Weights:
        """Select groups."""
        return Weights(self.log_weights[which], self.counts[which], self.largest)


class Moments(NamedTuple):
    """Moments of the counts of tilted members."""

    log_sum: Tensor  # (groups,), log of the sum of tilted probabilities
    probs: Tensor  # (memberships, k)
    mean: Tensor  # (groups, k)
    covariance: Tensor  # (groups, k, k)


class Factors(NamedTuple):
    """Normal factors that replace the weights, ``exp(log_scale + r c - q c^2 / 2)``, each (groups, k)."""

    q: Tensor
    r: Tensor
    log_scale: Tensor


def infer_counts_as_normal(
    log_probs: Tensor, segments: Segments, log_weights: Tensor, tolerance: float = TOLERANCE
) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate the log of the sum of weights times probabilities, and each membership's posterior.

    The third result is the effect of the counts on the log-probabilities of each membership, (memberships, k). The
    log-weights are concave. At convergence, expected counts change by less than ``tolerance`` members.
    """
    members, row_of_member = _join_equal(log_probs, segments)
    weights = _select_possible(log_weights)
    tilt, factors = _solve(members, weights, tolerance)
    # The new factors belong to their scale: at convergence, the total is stationary.
    moments, _, factors, change = _update(members, weights, tilt, factors)
    inverse, covariance = _condition(moments, factors)
    natural = factors.r - tilt
    gradient = natural - factors.q * moments.mean
    log_total = (
        moments.log_sum
        + torch.linalg.slogdet(inverse).logabsdet / 2
        + (natural * moments.mean - factors.q * moments.mean.square() / 2).sum(1)
        + (gradient * _multiply(covariance, gradient)).sum(1) / 2
        + factors.log_scale.sum(1)
    )
    # A label of class c moves the counts of the other members away from their mean and their covariance.
    pull = factors.q[:, :, None] * inverse
    rows = members.segments
    effect = rows.expand(tilt - pull.diagonal(dim1=1, dim2=2) / 2) + _multiply_rows(moments.probs, pull, rows)
    posterior = log_softmax(members.log_probs + effect).exp()
    log_total = log_total.masked_fill(change > MAX_CHANGE, float("nan"))
    return log_total, posterior[row_of_member], effect[row_of_member]


def _join_equal(log_probs: Tensor, segments: Segments) -> tuple[Members, Tensor]:
    """Represent equal consecutive members of a group by one row, and return the row of each member."""
    new = torch.ones(len(log_probs), dtype=torch.bool, device=log_probs.device)
    new[1:] = (log_probs[1:] != log_probs[:-1]).any(1)
    new[segments.offsets[:-1]] = True
    row_of_member = new.cumsum(0) - 1
    if bool(new.all()):
        return Members(class_major(log_probs), segments, None), row_of_member
    counts = torch.bincount(row_of_member).to(log_probs.dtype)
    rows = Segments.from_sizes(segments.sum(new.long()))
    return Members(class_major(log_probs[new]), rows, counts), row_of_member


def _select_possible(log_weights: Tensor) -> Weights:
    """Omit impossible counts; the possible ones are consecutive."""
    possible = log_weights > float("-inf")
    largest = log_weights.shape[2] - 1
    counts = possible.int().argmax(2)[..., None] + torch.arange(int(possible.sum(2).max()), device=log_weights.device)
    selected = log_weights.gather(2, counts.clamp_max(largest)).masked_fill(counts > largest, float("-inf"))
    return Weights(selected, counts.to(log_weights.dtype), largest)


def _solve(members: Members, weights: Weights, tolerance: float) -> tuple[Tensor, Factors]:
    """Iterate to convergence and return tilts and factors, ``(groups, k)``; converged groups are set aside."""
    log_probs, n = members.log_probs, len(members.segments)
    all_tilts = log_probs.new_zeros(n, log_probs.shape[1])
    all_factors = Factors(*(torch.zeros_like(all_tilts) for _ in Factors._fields))
    which = torch.arange(n, device=log_probs.device)
    tilt, factors = all_tilts, all_factors
    # A tilt may be as large as the differences of log-probabilities; the limit of its steps decreases.
    span = float(-log_probs.where(log_probs > float("-inf"), 0.0).min())
    for step in range(MAX_STEPS):
        _, mean, new, change = _update(members, weights, tilt, factors)
        moving = change >= tolerance  # false for NaN, which is returned
        if step and 2 * int(moving.sum()) <= len(moving):
            all_tilts[which], all_factors = tilt, _put(all_factors, which, factors)
            if not bool(moving.any()):
                break
            members, weights = members.take(moving.nonzero().flatten()), weights.take(moving)
            which, tilt, mean = which[moving], tilt[moving], mean[moving]
            factors, new = (Factors(*(table[moving] for table in tables)) for tables in (factors, new))
        max_step = max(1.0, span * 0.5**step)
        tilt = (factors.r - factors.q * mean).clamp(tilt - max_step, tilt + max_step)
        damping = 0.7 * 0.98**step  # decreases, because longer steps can oscillate
        factors = Factors(*(torch.lerp(*pair, damping) for pair in zip(factors, new, strict=True)))
    else:
        all_tilts[which], all_factors = tilt, _put(all_factors, which, factors)
    return all_tilts, all_factors


def _put(into: Factors, which: Tensor, factors: Factors) -> Factors:
    return Factors(*(old.index_copy(0, which, new) for old, new in zip(into, factors, strict=True)))


def _update(
    members: Members, weights: Weights, tilt: Tensor, factors: Factors
) -> tuple[Moments, Tensor, Factors, Tensor]:
    """Return tilted moments, the mean of counts given the factors, new factors, and the change of expected counts."""
    moments = _compute_moments(members, tilt)
    _, covariance = _condition(moments, factors)
    mean = moments.mean + _multiply(covariance, factors.r - tilt - factors.q * moments.mean)
    new = _match(factors, mean, covariance.diagonal(dim1=1, dim2=2), weights)
    # With the new factors, and the tilt that follows from them.
    next_change = _multiply(covariance, new.r - factors.r - (new.q - factors.q) * mean)
    change = (mean - moments.mean).abs().amax(1) + next_change.abs().amax(1)
    return moments, mean, new, change


def _condition(moments: Moments, factors: Factors) -> tuple[Tensor, Tensor]:
    """Return the inverse of one plus covariance times precision, and the covariance given the factors."""
    unit = torch.eye(moments.mean.shape[1]).to(moments.mean)
    inverse = torch.linalg.inv(unit + moments.covariance * factors.q[:, None])
    return inverse, inverse @ moments.covariance


def _compute_moments(members: Members, tilt: Tensor) -> Moments:
    segments, counts = members.segments, members.counts
    log_sums, probs = normalise(members.log_probs + tilt.t()[:, segments.index].t())
    weighted = probs if counts is None else probs * counts[:, None]
    mean = segments.sum(weighted)
    if segments.uniform_size is not None:
        tables = [table.view(len(segments), segments.uniform_size, -1) for table in (probs, weighted)]
        products = tables[0].transpose(1, 2) @ tables[1]
    else:
        k = probs.shape[1]
        first, second = torch.triu_indices(k, k, 1, device=probs.device)
        upper = segments.sum((probs.t()[first] * weighted.t()[second]).t())
        products = probs.new_zeros(len(segments), k, k)
        products[:, first, second] = products[:, second, first] = upper
    log_sum = segments.sum(log_sums if counts is None else log_sums * counts)
    return Moments(log_sum, probs, mean, to_covariance_(products))


def _match(factors: Factors, mean: Tensor, variance: Tensor, weights: Weights) -> Factors:
    """Return factors that lead to the mean and variance of each count with its weights and the other factors."""
    # The cavity: mean and variance of the count without its weights.
    cavity = variance / (1 - factors.q * variance)
    centre = mean + cavity * (factors.q * mean - factors.r)
    cavity = cavity.clamp_min(MIN_SPREAD)
    # The sums over integers without weights correct for the difference between a sum and an integral.
    log_plain, plain = _plain_moments(centre, cavity, weights.largest)
    log_weighted, weighted = _discrete_moments(centre, cavity, weights.counts, weights.log_weights)
    q = (1 / weighted[1] - 1 / plain[1]).clamp_min(0.0)
    r = weighted[0] * (q + 1 / plain[1]) - plain[0] / plain[1]
    joint = 1 / (1 / cavity + q)
    joint_mean = joint * (centre / cavity + r)
    log_mass = (joint / cavity).log() / 2 + joint_mean.square() / (2 * joint) - centre.square() / (2 * cavity)
    return Factors(q, r, log_weighted - log_plain - log_mass)


def _plain_moments(centre: Tensor, variance: Tensor, largest: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute :func:`_discrete_moments` of all counts up to ``largest`` without weights."""
    reach = FAR * variance.sqrt()
    log_sum, moments = (2 * math.pi * variance).log() / 2, (centre.clone(), variance.clone())
    near = ~((variance >= WIDE) & (centre > reach) & (centre < largest - reach))  # true for NaN
    if bool(near.any()):
        centre, variance, reach = centre[near], variance[near], reach[near].nan_to_num(0)
        width = min(int(2 * reach.max()) + 2, largest + 1)
        start = (centre - reach).nan_to_num(0).floor().clamp(0, largest + 1 - width)
        counts = start[:, None] + torch.arange(width).to(start)
        log_sum[near], (moments[0][near], moments[1][near]) = _discrete_moments(centre, variance, counts)
    return log_sum, moments


def _discrete_moments(
    centre: Tensor, variance: Tensor, counts: Tensor, log_weights: Tensor | float = 0.0
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the log of the sum of an unnormalised normal density over counts, and their mean and variance."""
    scores = -(counts - centre[..., None]).square() / (2 * variance[..., None]) + log_weights
    log_sum, shares = normalise(scores)
    mean = (shares * counts).sum(-1)
    mean_square = (shares * (counts - mean[..., None]).square()).sum(-1)
    return log_sum, (mean, mean_square.clamp_min(MIN_VARIANCE))


def _multiply(matrices: Tensor, vectors: Tensor) -> Tensor:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _multiply_rows(rows: Tensor, matrices: Tensor, segments: Segments) -> Tensor:
    """Multiply the row of each membership by the matrix of its group."""
    if segments.uniform_size is not None:
        return (rows.view(len(segments), segments.uniform_size, -1) @ matrices).view_as(rows)
    return (rows[:, None] @ segments.expand(matrices))[:, 0]
