"""Counts of several classes with weights in groups too large for exact states: expectation propagation.

The vector of counts is taken for normal, with the mean and covariance of members whose log-probabilities are shifted by
a common tilt per class. The weights of each class, a function of its count alone, are replaced by a normal factor
``exp(r c - q c^2 / 2)`` with the same mean and variance in the place of the others, in turns until nothing changes; for
normal noise that is its variance added to that of the counts. The tilt is moved along so that the tilted mean is the
mean given all weights: the normal distribution is then used at its centre, however unlikely the counts were. The
posterior of a member has the correction of second order that :mod:`unbag.kernels.saddle_point` has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unbag.kernels.logspace import log_softmax, normalise
from unbag.segments import Segments

# Counts are whole: with this variance added, a normal density is one at a mean without variance, as a probability is.
LEAST_VARIANCE = 1 / (2 * math.pi)
# Below this variance, whole numbers miss the peak of a normal density.
LEAST_SPREAD = 0.25
STEPS = 300
# Expected counts may still move by this share of a member: the total, which is stationary, is off by far less.
TOLERANCE = 1e-5
# Members by which expected counts may be off when all steps are done; beyond that there is no result.
FARTHEST_OFF = 0.5


class Counts(NamedTuple):
    """Counts of tilted members."""

    log_sum: Tensor  # (groups,), log of the sum of tilted weights
    probs: Tensor  # (memberships, k)
    mean: Tensor  # (groups, k)
    covariance: Tensor  # (groups, k, k)


class Factors(NamedTuple):
    """Normal factors in the place of the weights, ``exp(log_scale + r c - q c^2 / 2)``, each (groups, k)."""

    q: Tensor
    r: Tensor
    log_scale: Tensor


def infer_counts_as_normal(
    log_probs: Tensor, segments: Segments, log_weights: Tensor, tolerance: float = TOLERANCE
) -> tuple[Tensor, Tensor]:
    """Return approximations of the log of the sum of weights times probabilities, and of each membership's posterior.

    Parameters
    ----------
    log_probs
        (memberships, k), in float64.
    segments
        The memberships of each group.
    log_weights
        Of the counts of each class, from 0 on, concave: (groups, k, counts).
    tolerance
        By which share of a member expected counts may still move.
    """
    tilt, factors = _solve(log_probs, segments, log_weights, tolerance)
    counts, _, new, off = _round(log_probs, segments, log_weights, tilt, factors)
    # The new factors and their scale belong together: where neither moves any more, the total is stationary.
    factors = new
    inverse, covariance = _given(counts, factors)
    natural = factors.r - tilt
    around = natural - factors.q * counts.mean
    log_total = (
        counts.log_sum
        + torch.linalg.slogdet(inverse).logabsdet / 2
        + (natural * counts.mean - factors.q * counts.mean.square() / 2).sum(1)
        + (around * _times(covariance, around)).sum(1) / 2
        + factors.log_scale.sum(1)
    )
    # Taking label c moves the counts of the others away from their mean and their covariance.
    pull = factors.q[:, :, None] * inverse
    effect = segments.expand(tilt - pull.diagonal(dim1=1, dim2=2) / 2) + _rows_times(counts.probs, pull, segments)
    return log_total.masked_fill(off > FARTHEST_OFF, float("nan")), log_softmax(log_probs + effect).exp()


def _solve(log_probs: Tensor, segments: Segments, log_weights: Tensor, tolerance: float) -> tuple[Tensor, Factors]:
    """Return tilts and factors that move no more, ``(groups, k)`` each; groups that have come so far are set aside."""
    all_tilts = log_probs.new_zeros(len(segments), log_probs.shape[1])
    all_factors = Factors(*(torch.zeros_like(all_tilts) for _ in Factors._fields))
    which = torch.arange(len(segments), device=log_probs.device)
    tilt, factors = all_tilts, all_factors
    # A tilt may have to overcome all that log-probabilities differ by, in shorter and shorter steps.
    longest = float(-log_probs.where(log_probs > float("-inf"), 0.0).min())
    for step in range(STEPS):
        _, mean, new, off = _round(log_probs, segments, log_weights, tilt, factors)
        moving = off >= tolerance  # NaN comes out as it went in
        if step and 2 * int(moving.sum()) <= len(moving):
            all_tilts[which], all_factors = tilt, _put(all_factors, which, factors)
            if not bool(moving.any()):
                break
            members, segments = segments.take(moving.nonzero().flatten())
            log_probs, log_weights = log_probs[members], log_weights[moving, :, : segments.max_size + 1]
            which, tilt, mean = which[moving], tilt[moving], mean[moving]
            factors, new = (Factors(*(one[moving] for one in own)) for own in (factors, new))
        reach = max(1.0, longest * 0.5**step)
        tilt = (factors.r - factors.q * mean).clamp(tilt - reach, tilt + reach)
        share = 0.7 * 0.98**step  # of the way: where all of it leads back and forth, less leads there
        factors = Factors(*(torch.lerp(old, now, share) for old, now in zip(factors, new, strict=True)))
    else:
        all_tilts[which], all_factors = tilt, _put(all_factors, which, factors)
    return all_tilts, all_factors


def _put(into: Factors, which: Tensor, factors: Factors) -> Factors:
    return Factors(*(old.index_copy(0, which, now) for old, now in zip(into, factors, strict=True)))


def _round(
    log_probs: Tensor, segments: Segments, log_weights: Tensor, tilt: Tensor, factors: Factors
) -> tuple[Counts, Tensor, Factors, Tensor]:
    """Return tilted counts, their mean given the factors, new factors, and by how much counts still move."""
    counts = _tilted(log_probs, segments, tilt)
    _, covariance = _given(counts, factors)
    mean = counts.mean + _times(covariance, factors.r - tilt - factors.q * counts.mean)
    new = _match(factors, mean, covariance.diagonal(dim1=1, dim2=2), log_weights)
    # With the new factors, and with the tilt moved along.
    change = _times(covariance, new.r - factors.r - (new.q - factors.q) * mean)
    off = (mean - counts.mean).abs().amax(1) + change.abs().amax(1)
    return counts, mean, new, off


def _given(counts: Counts, factors: Factors) -> tuple[Tensor, Tensor]:
    """Return the inverse of one plus covariance times precision, and the covariance given the factors."""
    unit = torch.eye(counts.mean.shape[1]).to(counts.mean)
    inverse = torch.linalg.inv(unit + counts.covariance * factors.q[:, None])
    return inverse, inverse @ counts.covariance


def _tilted(log_probs: Tensor, segments: Segments, tilt: Tensor) -> Counts:
    log_sums, probs = normalise(log_probs + segments.expand(tilt))
    mean = segments.sum(probs)
    if segments.uniform_size is not None:
        table = probs.view(len(segments), segments.uniform_size, -1)
        products = table.transpose(1, 2) @ table
    else:
        products = segments.sum(probs[:, :, None] * probs[:, None])
    # The diagonal is what the other entries of a row leave to zero: p - p^2 would have no digits left for p near one.
    covariance = -products
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(-covariance.sum(2))
    return Counts(segments.sum(log_sums), probs, mean, covariance)


def _match(factors: Factors, mean: Tensor, variance: Tensor, log_weights: Tensor) -> Factors:
    """Return factors with which each count has the mean and variance that its weights give it beside the others."""
    # The mean and variance of the count, were its own weights not there.
    without = variance / (1 - factors.q * variance)
    centre = mean + without * (factors.q * mean - factors.r)
    without = without.clamp_min(LEAST_SPREAD)
    counts = torch.arange(log_weights.shape[2]).to(mean)
    log_normal = -(counts - centre[:, :, None]).square() / (2 * without[:, :, None])  # (groups, k, counts)
    # Counts are whole: what the normal distribution itself is off by there is not the doing of the weights.
    log_plain, plain = _moments(log_normal, counts)
    log_weighed, weighed = _moments(log_normal + log_weights, counts)
    q = (1 / weighed[1] - 1 / plain[1]).clamp_min(0.0)
    r = weighed[0] * (q + 1 / plain[1]) - plain[0] / plain[1]
    joined = 1 / (1 / without + q)
    joined_mean = joined * (centre / without + r)
    log_mass = (joined / without).log() / 2 + joined_mean.square() / (2 * joined) - centre.square() / (2 * without)
    return Factors(q, r, log_weighed - log_plain - log_mass)


def _moments(scores: Tensor, counts: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the log of the sum of exponentials, and mean and variance of the counts that they weigh."""
    log_sum, shares = normalise(scores)
    mean = (shares * counts).sum(2)
    variance = (shares * (counts - mean[:, :, None]).square()).sum(2)
    return log_sum, (mean, variance.clamp_min(LEAST_VARIANCE))


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _rows_times(rows: Tensor, matrices: Tensor, segments: Segments) -> Tensor:
    """Multiply the row of each membership by the matrix of its group."""
    if segments.uniform_size is not None:
        return (rows.view(len(segments), segments.uniform_size, -1) @ matrices).view_as(rows)
    return (rows[:, None] @ segments.expand(matrices))[:, 0]
