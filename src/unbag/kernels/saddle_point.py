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

import torch
from torch import Tensor

from unbag.groups import Groups
from unbag.kernels.logspace import normalise
from unbag.kernels.segments import spread, sum_per_group


def infer_counts_approximately(log_probs: Tensor, groups: Groups, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return approximations of the log-probability of counts and of each membership's posterior, in float64.

    Parameters
    ----------
    log_probs
        (memberships, k).
    groups
        Which memberships belong together; their members are not looked at.
    z
        Counts, (groups, k), adding up to the size of the group.
    """
    absent = spread(z == 0, groups)
    scores = log_probs.double().masked_fill(absent, float("-inf"))
    z = z.double()
    ruled_out = (scores == float("-inf")) & ~absent
    impossible = sum_per_group((scores == float("-inf")).all(1).double(), groups) > 0
    scores = scores.masked_fill(spread(impossible, groups)[:, None], 0.0)
    tilt, log_partition, chances = find_tilt(scores, groups, z)
    # Where members that rule classes out leave no way to make the counts, no tilt comes near them.
    out_of_reach = (z - sum_per_group(chances, groups)).abs().amax(1) > 1e-3
    impossible |= out_of_reach & (sum_per_group(ruled_out.any(1).double(), groups) > 0)
    log_factors, slope = _normaliser(_covariance(chances, groups), z)
    log_total = log_partition - (tilt * z).sum(1) + log_factors
    own_effect = _diagonal(slope, groups) - 2 * _times(chances, slope, groups)
    _, _, posterior = find_tilt(scores + own_effect, groups, z, start=tilt)
    return log_total.masked_fill(impossible, float("-inf")), posterior


def find_tilt(scores: Tensor, groups: Groups, z: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Find the shift of each class for which the expected counts of each group are z.

    It minimises the convex function ``sum_i logsumexp(scores_i + tilt) - tilt . z`` by the method of Levenberg and
    Marquardt: Newton's where that helps, and along a flat stretch, where a confident classifier has no curvature,
    ever longer steps.

    Returns
    -------
    tilt
        (groups, k); 0 for classes that do not occur.
    log_partition
        (groups,), ``sum_i logsumexp(scores_i + tilt)``.
    chances
        (memberships, k), the tilted probabilities.
    """
    present = (z > 0).double()
    tilt = torch.zeros_like(z) if start is None else start
    log_partition, chances = _partition(scores, tilt, groups)
    value = log_partition - (tilt * z).sum(1)
    missing = z - sum_per_group(chances, groups)
    damping = torch.full_like(value, 1e-3)
    for _ in range(200):
        # Where no step, however short, is an improvement, rounding allows no more.
        todo = (missing.abs().amax(1) > 1e-10 * groups.sizes) & (damping < 1e8)
        if not bool(todo.any()):
            break
        # A shift common to all classes changes nothing; fixing it makes the system regular.
        system = _covariance(chances, groups) + present[:, :, None] * present[:, None]
        system.diagonal(dim1=1, dim2=2).add_(damping[:, None] * z + 1 - present)
        new_tilt = tilt + torch.linalg.solve(system, missing) * todo[:, None]
        new_partition, new_chances = _partition(scores, new_tilt, groups)
        new_value = new_partition - (new_tilt * z).sum(1)
        new_missing = z - sum_per_group(new_chances, groups)
        # Near the minimum its value is all rounding; then the smaller slope decides.
        rounding = 1e-13 * log_partition.abs()
        smaller = (new_value < value + rounding) & (new_missing.norm(dim=1) < missing.norm(dim=1))
        better = (new_value < value - rounding) | smaller
        damping = torch.where(better, damping / 10, damping * 10).clamp_min_(1e-10)
        tilt, missing = torch.where(better[:, None], new_tilt, tilt), torch.where(better[:, None], new_missing, missing)
        value, log_partition = torch.where(better, new_value, value), torch.where(better, new_partition, log_partition)
        chances = torch.where(spread(better, groups)[:, None], new_chances, chances)
    return tilt, log_partition, chances


def _partition(scores: Tensor, tilt: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    log_sums, chances = normalise(scores + spread(tilt, groups))
    return sum_per_group(log_sums, groups), chances


def _covariance(chances: Tensor, groups: Groups) -> Tensor:
    """Covariance of the counts of each group, (groups, k, k).

    The diagonal is what the other entries of a row leave to zero: p - p^2 would have no digits left for p near one.
    """
    if groups.uniform_size is not None:
        block = chances.view(len(groups), groups.uniform_size, -1)
        products = block.transpose(1, 2) @ block
    else:
        columns = [sum_per_group(chances * column[:, None], groups) for column in chances.unbind(1)]
        products = torch.stack(columns, 1)
    products.diagonal(dim1=1, dim2=2).zero_()
    return torch.diag_embed(products.sum(2)) - products


def _normaliser(covariance: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability that counts are at their mean, (groups,), and its slope by the covariance, (groups, k, k)."""
    # The counts add up, so one class follows from the others: the largest one, which comes last.
    order = z.argsort(dim=1, stable=True)
    back = order.argsort(dim=1)
    left, unit_lower = _eliminate(_reorder(covariance, order))  # variance left to each class, and L of L D L^T
    log_factor, factor_slope = _chain_factors(left, z.gather(1, order))
    inverse = torch.linalg.solve_triangular(unit_lower, torch.eye(z.shape[1]).to(z), upper=False, unitriangular=True)
    slope = inverse.transpose(1, 2) @ (factor_slope[:, :, None] * inverse)
    return log_factor.sum(1), _reorder(slope, back)


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
    rest = covariance.clone()
    own = covariance.diagonal(dim1=1, dim2=2)
    k = covariance.shape[1]
    unit_lower = torch.eye(k).to(covariance).repeat(len(covariance), 1, 1)
    left = torch.zeros_like(own)
    for j in range(k - 1):
        pivot = rest[:, j, j]
        certain = pivot <= 1e-12 * own[:, j]  # only rounding: the classes before decide this one
        left[:, j] = pivot.masked_fill(certain, 0.0)
        factor = (rest[:, j + 1 :, j] / pivot[:, None]).masked_fill(certain[:, None], 0.0)
        unit_lower[:, j + 1 :, j] = factor
        rest[:, j + 1 :] -= factor[:, :, None] * rest[:, j, None, :]
    # The last class follows from the others.
    unit_lower[:, -1, :-1] = 0.0
    return left, unit_lower


def _reorder(matrices: Tensor, order: Tensor) -> Tensor:
    rows = matrices.gather(1, order[:, :, None].expand_as(matrices))
    return rows.gather(2, order[:, None, :].expand_as(matrices))


def _diagonal(slope: Tensor, groups: Groups) -> Tensor:
    return spread(slope.diagonal(dim1=1, dim2=2), groups)


def _times(chances: Tensor, slope: Tensor, groups: Groups) -> Tensor:
    """Multiply each membership's row by the matrix of its group: (memberships, k)."""
    if groups.uniform_size is not None:
        return (chances.view(len(groups), groups.uniform_size, -1) @ slope).view_as(chances)
    return torch.stack([(chances * spread(row, groups)).sum(1) for row in slope.unbind(2)], 1)
