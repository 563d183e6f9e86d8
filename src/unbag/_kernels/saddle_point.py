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

from unbag._kernels.blocks import infer_in_blocks
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import covariances, find_tilt, undetermined


def infer_counts_approximately(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return approximations of both: see ``infer_in_blocks``. The log-probability is NaN should no tilt be found."""
    return infer_in_blocks(log_probs, segments, z, _infer_block)


def _infer_block(scores: Tensor, weights: Tensor | None, z: Tensor) -> tuple[Tensor, Tensor]:
    # An error of the tilt enters the likelihood squared; so little of the root of the members is far below the error of
    # the approximation, for groups of any size.
    tilt = find_tilt(scores, weights, z, tolerance=3e-5 * z.sum(1).rsqrt())
    probs = tilt.moments.probs
    covariance = covariances(probs, weights)
    log_factors, slope = _normaliser(covariance, z)
    log_total = tilt.moments.log_sums.sum(1) - (tilt.shift * z).sum(1) + log_factors
    own_effect = torch.baddbmm(slope.diagonal(dim1=1, dim2=2)[:, :, None], slope, probs, alpha=-2)
    # What takes back to first order by how much these effects move the expected counts is where the next tilt begins.
    weighed = own_effect * probs if weights is None else own_effect * probs * weights[:, None]
    moved = weighed.sum(2) - torch.bmm(probs, weighed.sum(1)[:, :, None])[:, :, 0]
    back = torch.linalg.solve_ex(covariance.add_(undetermined(z)), moved)[0].nan_to_num_(0.0, 0.0, 0.0)
    again = find_tilt(own_effect.add_(scores), weights, z, start=tilt.shift - back)
    return log_total.masked_fill(~(tilt.converged & again.converged), float("nan")), again.moments.probs


def _normaliser(covariance: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability that counts are at their mean, (groups,), and its slope by the covariance, (groups, k, k)."""
    left, inverse = _eliminate(covariance[:, :-1, :-1])  # the last class follows from the others
    log_factor, factor_slope = _chain_factors(left, z)
    slope = torch.bmm(inverse.transpose(1, 2), factor_slope[:, :, None] * inverse)
    return log_factor.sum(1), torch.nn.functional.pad(slope, (0, 1, 0, 1))


def _chain_factors(left: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each class's count given those before it, and its slope by the variance left to it.

    Members that are all alike make the counts multinomial, and each factor binomial. What the difference of Poisson
    counts gets wrong there is put right in proportion to how much of the binomial's variance is left.
    """
    after = z.sum(1, keepdim=True) - z.cumsum(1)[:, :-1]  # members in the classes after this one
    z = z[:, :-1]
    binomial_variance = z * after / (z + after)
    counts = torch.stack([z + after, z, after])
    both, own, rest = torch.lgamma(counts + 1).sub_(torch.xlogy(counts, counts))
    open_ = binomial_variance > 0
    binomial_correction = both.sub_(own).sub_(rest).sub_(torch.special.i0e(binomial_variance).log_())
    binomial_correction = binomial_correction.div_(binomial_variance).where(open_, 0.0)
    even = torch.special.i0e(left)
    # The correction is left out of the slope: against exact posteriors, it is two to three times better without.
    slope = torch.special.i1e(left).div_(even).sub_(1)
    return even.log_().addcmul_(left, binomial_correction), slope.where(open_, 0.0)


def _eliminate(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Split covariances into L D L^T, class after class, and return the diagonal of D and the inverse of L."""
    root, failed = torch.linalg.cholesky_ex(covariance)
    pivots = root.diagonal(dim1=1, dim2=2)
    left, own = pivots.square(), covariance.diagonal(dim1=1, dim2=2)
    unit = torch.eye(covariance.shape[1], dtype=covariance.dtype, device=covariance.device)
    if not bool((failed > 0).any() | (left <= 1e-12 * own).any()):
        return left, torch.linalg.solve_triangular(root, unit, upper=False).mul_(pivots[:, :, None])
    left, unit_lower, rest = torch.zeros_like(left), unit.repeat(len(covariance), 1, 1), covariance.clone()
    for j in range(covariance.shape[1]):
        pivot = rest[:, j, j]
        certain = pivot <= 1e-12 * own[:, j]  # only rounding: the classes before decide this one
        left[:, j] = pivot.masked_fill(certain, 0.0)
        factor = (rest[:, j + 1 :, j] / pivot[:, None]).masked_fill(certain[:, None], 0.0)
        unit_lower[:, j + 1 :, j] = factor
        rest[:, j + 1 :] -= factor[:, :, None] * rest[:, j, None, :]
    return left, torch.linalg.solve_triangular(unit_lower, unit, upper=False, unitriangular=True)
