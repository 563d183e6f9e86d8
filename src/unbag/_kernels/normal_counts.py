"""Counts of several classes with weights in groups too large for exact states: expectation propagation.

The vector of counts is taken for normal, with the mean and covariance of members whose log-probabilities are shifted by
a common tilt per class. The weights of each class, a function of its count alone, are replaced by a normal factor
``exp(r c - q c^2 / 2)`` with the same mean and variance in the place of the others, in turns until nothing changes; for
normal noise that is its variance added to that of the counts. The tilt is moved along so that the tilted mean is the
mean given all weights: the normal distribution is then used at its centre, however unlikely the counts were. The
posterior of a member has the correction of second order that :mod:`unbag._kernels.saddle_point` has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from unbag._kernels.logspace import class_major, log_softmax, normalise
from unbag._kernels.segments import Segments

# Counts are whole: with this variance added, a normal density is one at a mean without variance, as a probability is.
LEAST_VARIANCE = 1 / (2 * math.pi)
# Below this variance, whole numbers miss the peak of a normal density.
LEAST_SPREAD = 0.25
STEPS = 300
# Expected counts may still move by this share of a member: the total, which is stationary, is off by far less.
TOLERANCE = 1e-5
# From this variance on, and so many standard deviations from the ends, sums over whole numbers are integrals.
WIDE, FAR = 2.0, 9.0
# Members by which expected counts may be off when all steps are done; beyond that there is no result.
FARTHEST_OFF = 0.5


class Members(NamedTuple):
    """Rows of members, each of which may stand for several that are alike."""

    log_probs: Tensor  # (rows, k), one class after the other in memory
    segments: Segments  # the rows of each group
    times: Tensor | None  # (rows,), how many members each row stands for; None for one

    def take(self, which: Tensor) -> Members:
        """Return the rows of some groups."""
        rows, segments = self.segments.take(which)
        return Members(class_major(self.log_probs[rows]), segments, None if self.times is None else self.times[rows])


class Weights(NamedTuple):
    """Log-weights of the counts that have one, side by side."""

    log_weights: Tensor  # (groups, k, width)
    counts: Tensor  # (groups, k, width), which counts these are
    most: int  # the largest count of all

    def take(self, which: Tensor) -> Weights:
        """Return the weights of some groups."""
        return Weights(self.log_weights[which], self.counts[which], self.most)


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
) -> tuple[Tensor, Tensor, Tensor]:
    """Return approximations of the log of the sum of weights times probabilities, and of each membership's posterior.

    The third result is what the counts add to the log-probabilities of each membership, (memberships, k).

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
    members, row_of_member = _join_alike(log_probs, segments)
    weights = _possible(log_weights)
    tilt, factors = _solve(members, weights, tolerance)
    counts, _, new, off = _round(members, weights, tilt, factors)
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
    own = members.segments
    effect = own.expand(tilt - pull.diagonal(dim1=1, dim2=2) / 2) + _rows_times(counts.probs, pull, own)
    posterior = log_softmax(members.log_probs + effect).exp()
    log_total = log_total.masked_fill(off > FARTHEST_OFF, float("nan"))
    return log_total, posterior[row_of_member], effect[row_of_member]


def _join_alike(log_probs: Tensor, segments: Segments) -> tuple[Members, Tensor]:
    """Let one row stand for members of a group that are alike and follow each other; and return the row of each."""
    new = torch.ones(len(log_probs), dtype=torch.bool, device=log_probs.device)
    new[1:] = (log_probs[1:] != log_probs[:-1]).any(1)
    new[segments.offsets[:-1]] = True
    row_of_member = new.cumsum(0) - 1
    if bool(new.all()):
        return Members(class_major(log_probs), segments, None), row_of_member
    times = torch.bincount(row_of_member).to(log_probs.dtype)
    rows = Segments.from_sizes(segments.sum(new.long()))
    return Members(class_major(log_probs[new]), rows, times), row_of_member


def _possible(log_weights: Tensor) -> Weights:
    """Leave out counts that have no weight; those that have one follow each other."""
    possible = log_weights > float("-inf")
    most = log_weights.shape[2] - 1
    places = possible.int().argmax(2)[..., None] + torch.arange(int(possible.sum(2).max()), device=log_weights.device)
    within = log_weights.gather(2, places.clamp_max(most)).masked_fill(places > most, float("-inf"))
    return Weights(within, places.to(log_weights.dtype), most)


def _solve(members: Members, weights: Weights, tolerance: float) -> tuple[Tensor, Factors]:
    """Return tilts and factors that move no more, ``(groups, k)`` each; groups that have come so far are set aside."""
    log_probs, n = members.log_probs, len(members.segments)
    all_tilts = log_probs.new_zeros(n, log_probs.shape[1])
    all_factors = Factors(*(torch.zeros_like(all_tilts) for _ in Factors._fields))
    which = torch.arange(n, device=log_probs.device)
    tilt, factors = all_tilts, all_factors
    # A tilt may have to overcome all that log-probabilities differ by, in shorter and shorter steps.
    longest = float(-log_probs.where(log_probs > float("-inf"), 0.0).min())
    for step in range(STEPS):
        _, mean, new, off = _round(members, weights, tilt, factors)
        moving = off >= tolerance  # NaN comes out as it went in
        if step and 2 * int(moving.sum()) <= len(moving):
            all_tilts[which], all_factors = tilt, _put(all_factors, which, factors)
            if not bool(moving.any()):
                break
            members, weights = members.take(moving.nonzero().flatten()), weights.take(moving)
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
    members: Members, weights: Weights, tilt: Tensor, factors: Factors
) -> tuple[Counts, Tensor, Factors, Tensor]:
    """Return tilted counts, their mean given the factors, new factors, and by how much counts still move."""
    counts = _tilted(members, tilt)
    _, covariance = _given(counts, factors)
    mean = counts.mean + _times(covariance, factors.r - tilt - factors.q * counts.mean)
    new = _match(factors, mean, covariance.diagonal(dim1=1, dim2=2), weights)
    # With the new factors, and with the tilt moved along.
    change = _times(covariance, new.r - factors.r - (new.q - factors.q) * mean)
    off = (mean - counts.mean).abs().amax(1) + change.abs().amax(1)
    return counts, mean, new, off


def _given(counts: Counts, factors: Factors) -> tuple[Tensor, Tensor]:
    """Return the inverse of one plus covariance times precision, and the covariance given the factors."""
    unit = torch.eye(counts.mean.shape[1]).to(counts.mean)
    inverse = torch.linalg.inv(unit + counts.covariance * factors.q[:, None])
    return inverse, inverse @ counts.covariance


def _tilted(members: Members, tilt: Tensor) -> Counts:
    segments, times = members.segments, members.times
    log_sums, probs = normalise(members.log_probs + tilt.t()[:, segments.index].t())
    weighed = probs if times is None else probs * times[:, None]
    mean = segments.sum(weighed)
    if segments.uniform_size is not None:
        tables = [own.view(len(segments), segments.uniform_size, -1) for own in (probs, weighed)]
        products = tables[0].transpose(1, 2) @ tables[1]
    else:
        k = probs.shape[1]
        first, second = torch.triu_indices(k, k, 1, device=probs.device)
        upper = segments.sum((probs.t()[first] * weighed.t()[second]).t())
        products = probs.new_zeros(len(segments), k, k)
        products[:, first, second] = products[:, second, first] = upper
    # The diagonal is what the other entries of a row leave to zero: p - p^2 would have no digits left for p near one.
    covariance = -products
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    diagonal.copy_(-covariance.sum(2))
    return Counts(segments.sum(log_sums if times is None else log_sums * times), probs, mean, covariance)


def _match(factors: Factors, mean: Tensor, variance: Tensor, weights: Weights) -> Factors:
    """Return factors with which each count has the mean and variance that its weights give it beside the others."""
    # The mean and variance of the count, were its own weights not there.
    without = variance / (1 - factors.q * variance)
    centre = mean + without * (factors.q * mean - factors.r)
    without = without.clamp_min(LEAST_SPREAD)
    # Counts are whole: what the normal distribution itself is off by there is not the doing of the weights.
    log_plain, plain = _plain_moments(centre, without, weights.most)
    log_weighed, weighed = _moments(centre, without, weights.counts, weights.log_weights)
    q = (1 / weighed[1] - 1 / plain[1]).clamp_min(0.0)
    r = weighed[0] * (q + 1 / plain[1]) - plain[0] / plain[1]
    joined = 1 / (1 / without + q)
    joined_mean = joined * (centre / without + r)
    log_mass = (joined / without).log() / 2 + joined_mean.square() / (2 * joined) - centre.square() / (2 * without)
    return Factors(q, r, log_weighed - log_plain - log_mass)


def _plain_moments(centre: Tensor, variance: Tensor, most: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return what :func:`_moments` does of all counts up to ``most`` without weights."""
    reach = FAR * variance.sqrt()
    log_sum, moments = (2 * math.pi * variance).log() / 2, (centre.clone(), variance.clone())
    near = ~((variance >= WIDE) & (centre > reach) & (centre < most - reach))  # NaN, too
    if bool(near.any()):
        centre, variance, reach = centre[near], variance[near], reach[near].nan_to_num(0)
        width = min(int(2 * reach.max()) + 2, most + 1)
        start = (centre - reach).nan_to_num(0).floor().clamp(0, most + 1 - width)
        counts = start[:, None] + torch.arange(width).to(start)
        log_sum[near], (moments[0][near], moments[1][near]) = _moments(centre, variance, counts)
    return log_sum, moments


def _moments(
    centre: Tensor, variance: Tensor, counts: Tensor, log_weights: Tensor | float = 0.0
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the log of the sum of a normal density, but for its scale, over counts, and their mean and variance."""
    scores = -(counts - centre[..., None]).square() / (2 * variance[..., None]) + log_weights
    log_sum, shares = normalise(scores)
    mean = (shares * counts).sum(-1)
    mean_square = (shares * (counts - mean[..., None]).square()).sum(-1)
    return log_sum, (mean, mean_square.clamp_min(LEAST_VARIANCE))


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _rows_times(rows: Tensor, matrices: Tensor, segments: Segments) -> Tensor:
    """Multiply the row of each membership by the matrix of its group."""
    if segments.uniform_size is not None:
        return (rows.view(len(segments), segments.uniform_size, -1) @ matrices).view_as(rows)
    return (rows[:, None] @ segments.expand(matrices))[:, 0]
