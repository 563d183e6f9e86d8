"""Counts of several classes in groups too large for exact states: the saddle point with its second-order correction.

Every member's log-probabilities are shifted by a common tilt per class until the expected counts are z. The tilt is
taken out again in log space; what remains is the probability that counts fall exactly on their mean. For many members
that is a normal density, one over the root of the determinant of (2 pi) times the covariance. Written as a chain over
classes, each given the ones before, it is a product of one over the root of (2 pi v) with v the variance left to that
class. That grows beyond one where v is small, that is where a classifier is confident, so each factor is replaced by
the probability e^-v I_0(v) that a difference of two Poisson counts of variance v is zero: equal for large v, and 1 - v,
as it should be, for small v. Where all members are alike, the factors are made exact.

Taking label c moves the remaining members' counts away from their mean and their covariance, by an amount that differs
between members: the correction of the posterior. The corrected weights are tilted once more, so that each group's
posterior adds up to its counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unbag.kernels.assignments import can_be_assigned
from unbag.kernels.tilts import find_tilt, tilted_probs
from unbag.segments import Segments

# Numbers that the members of one block of groups may take.
BLOCK = 2**18
# Segments of one block differ in size by less than this factor, so that little of it is padding.
ALIKE = 1.25


class Block(NamedTuple):
    """Segments of about one size, padded to a dense table; of each only the classes that occur in it."""

    which: Tensor  # (groups,), their numbers
    rows: Tensor  # (groups, members), the membership in each place; padding repeats one
    weights: Tensor | None  # (groups, members), 0 for padding, else 1; None where nothing is padded


def infer_counts_approximately(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return approximations of the log-probability of counts and of each membership's posterior, in float64.

    Parameters
    ----------
    log_probs
        (memberships, k).
    segments
        The memberships of each group.
    z
        Counts, (groups, k), adding up to the size of the group.

    Returns
    -------
    log_total
        (groups,), ``-inf`` where log-probabilities of ``-inf`` leave no way to make the counts; NaN should no tilt be
        found.
    posterior
        (memberships, k).
    """
    log_total = torch.empty(len(segments), dtype=torch.float64, device=z.device)
    posterior = torch.zeros(log_probs.shape, dtype=torch.float64, device=z.device)
    for which, rows, weights in _blocks(segments, z.shape[1]):
        # The counts add up, so one class follows from the others: the largest one, which comes last.
        counts, classes = z[which].sort(1)
        n_present = int((counts > 0).sum(1).max())
        counts, classes = counts[:, -n_present:].double(), classes[:, -n_present:]
        columns = classes[:, None].expand(-1, rows.shape[1], -1)  # (groups, members, present classes)
        scores = log_probs[rows].gather(2, columns).double().transpose(1, 2).contiguous()
        scores.masked_fill_((counts == 0)[:, :, None], float("-inf"))
        possible = can_be_assigned(scores, weights, counts)
        if not bool(possible.all()):
            scores.masked_fill_(~possible[:, None, None], 0.0)
        of_groups, probs = _infer_block(scores, weights, counts)
        log_total[which] = of_groups.masked_fill(~possible, float("-inf"))
        of_classes = torch.zeros(*rows.shape, z.shape[1], dtype=torch.float64, device=z.device)
        of_classes.scatter_(2, columns, probs.transpose(1, 2))
        posterior[rows.flatten()] = of_classes.flatten(0, 1)  # padding writes what its member has
    return log_total, posterior


def _blocks(segments: Segments, k: int) -> Iterator[Block]:
    """Put groups of about one size into dense blocks of bounded memory."""
    sizes, order = segments.sizes.sort()
    ends = sizes.tolist()
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and ends[last] <= ALIKE * ends[first] and (last + 1 - first) * ends[last] * k <= BLOCK:
            last += 1
        which, width = order[first:last], ends[last - 1]
        place = torch.arange(width, device=order.device)
        real = place < sizes[first:last, None]
        rows = segments.offsets[which][:, None] + place * real
        yield Block(which, rows, None if ends[first] == width else real.double())
        first = last


def _infer_block(scores: Tensor, weights: Tensor | None, z: Tensor) -> tuple[Tensor, Tensor]:
    # An error of the tilt enters the likelihood squared, so it need not be as small as that of the posterior.
    tilt = find_tilt(scores, weights, z, tolerance=1e-6)
    log_factors, slope = _normaliser(tilt.moments.covariance, z)
    log_total = tilt.moments.log_sums.sum(1) - (tilt.shift * z).sum(1) + log_factors
    _, probs = tilted_probs(scores, tilt.shift)
    own_effect = slope.diagonal(dim1=1, dim2=2)[:, :, None] - 2 * slope @ probs
    corrected = own_effect.add_(scores)
    again = find_tilt(corrected, weights, z, start=tilt.shift)
    _, posterior = tilted_probs(corrected, again.shift)
    return log_total.masked_fill(~(tilt.converged & again.converged), float("nan")), posterior


def _normaliser(covariance: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability that counts are at their mean, (groups,), and its slope by the covariance, (groups, k, k)."""
    left, unit_lower = _eliminate(covariance)  # variance left to each class, and L of L D L^T
    log_factor, factor_slope = _chain_factors(left, z)
    inverse = torch.linalg.solve_triangular(unit_lower, torch.eye(z.shape[1]).to(z), upper=False, unitriangular=True)
    return log_factor.sum(1), inverse.transpose(1, 2) @ (factor_slope[:, :, None] * inverse)


def _chain_factors(left: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each class's count given those before it, and its slope by the variance left to it.

    Members that are all alike make the counts multinomial, and each factor binomial. What the difference of Poisson
    counts gets wrong there is put right in proportion to how much of the binomial's variance is left.
    """
    remaining = z.flip(1).cumsum(1).flip(1)  # members in this class and those after it
    share = z / remaining.clamp_min(1)
    binomial_variance = z * (1 - share)
    log_binomial = (
        torch.lgamma(remaining + 1)
        - torch.lgamma(z + 1)
        - torch.lgamma(remaining - z + 1)
        + torch.xlogy(z, share)
        + torch.xlogy(remaining - z, 1 - share)
    )
    i0e = torch.special.i0e
    open_ = binomial_variance > 0
    amends = ((log_binomial - i0e(binomial_variance).log()) / binomial_variance).where(open_, 0.0)
    # The amends are left out of the slope: measured against exact posteriors, it is two to three times better without.
    slope = torch.special.i1e(left) / i0e(left) - 1
    return i0e(left).log() + left * amends, slope.where(open_, 0.0)


def _eliminate(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Split covariances into L D L^T, class after class; the last follows from the others and is left out."""
    left = torch.zeros_like(covariance[:, 0])
    unit_lower = torch.eye(covariance.shape[1]).to(covariance).repeat(len(covariance), 1, 1)
    root, failed = torch.linalg.cholesky_ex(covariance[:, :-1, :-1])
    pivots = root.diagonal(dim1=1, dim2=2)
    certain = pivots.square() <= 1e-12 * covariance.diagonal(dim1=1, dim2=2)[:, :-1]
    if not bool((failed > 0).any() | certain.any()):
        left[:, :-1] = pivots.square()
        unit_lower[:, :-1, :-1] = root / pivots[:, None]
        return left, unit_lower
    rest = covariance.clone()
    own = covariance.diagonal(dim1=1, dim2=2)
    for j in range(covariance.shape[1] - 1):
        pivot = rest[:, j, j]
        certain = pivot <= 1e-12 * own[:, j]  # only rounding: the classes before decide this one
        left[:, j] = pivot.masked_fill(certain, 0.0)
        factor = (rest[:, j + 1 :, j] / pivot[:, None]).masked_fill(certain[:, None], 0.0)
        unit_lower[:, j + 1 :, j] = factor
        rest[:, j + 1 :] -= factor[:, :, None] * rest[:, j, None, :]
    unit_lower[:, -1, :-1] = 0.0
    return left, unit_lower
