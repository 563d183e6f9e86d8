"""Counts of several classes in groups too large for exact states: the saddle point with its second-order correction.

The log-probabilities of all members are shifted by a common tilt per class until the expected counts are z. The tilt is
removed again in log space; what remains is the probability that the counts equal their mean. For many members that is a
normal density, 1 / sqrt(det(2 pi covariance)). As a chain over classes, each conditional on those before, it is a
product of 1 / sqrt(2 pi v) with v the conditional variance of the class. Where v is small, because a classifier is
confident, that exceeds one. Each factor is therefore replaced by the probability e^-v I_0(v) that a difference of two
Poisson counts of variance v is zero: equal for large v, and 1 - v, as required, for small v. Where all members are
equal, the factors are exact.

A label of class c moves the counts of the remaining members away from their mean and their covariance, by an amount
that differs between members: the correction of the posterior. The corrected weights are tilted once more, so that the
posterior of each group sums to its counts.
"""

import torch
from torch import Tensor

from unbag._kernels.blocks import infer_in_blocks
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import covariances, find_tilt, undetermined


def infer_counts_approximately(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Approximate the results of :func:`infer_in_blocks`; the log-probability is NaN if no tilt is found."""
    return infer_in_blocks(log_probs, segments, z, _infer_block)


def _infer_block(scores: Tensor, weights: Tensor | None, z: Tensor) -> tuple[Tensor, Tensor]:
    # The square of an error of the tilt enters the likelihood: with this tolerance, relative to the root of the number
    # of members, it is far below the error of the approximation for groups of any size.
    tilt = find_tilt(scores, weights, z, tolerance=3e-5 * z.sum(1).rsqrt())
    probs = tilt.moments.probs
    covariance = covariances(probs, weights)
    log_factors, slope = _log_prob_of_mean(covariance, z)
    log_total = tilt.moments.log_sums.sum(1) - (tilt.shift * z).sum(1) + log_factors
    effect = torch.baddbmm(slope.diagonal(dim1=1, dim2=2)[:, :, None], slope, probs, alpha=-2)
    # The next tilt starts from the shift that to first order undoes the change of the expected counts by these effects.
    weighted = effect * probs if weights is None else effect * probs * weights[:, None]
    change = weighted.sum(2) - torch.bmm(probs, weighted.sum(1)[:, :, None])[:, :, 0]
    correction = torch.linalg.solve_ex(covariance.add_(undetermined(z)), change)[0].nan_to_num_(0.0, 0.0, 0.0)
    corrected = find_tilt(effect.add_(scores), weights, z, start=tilt.shift - correction)
    return log_total.masked_fill(~(tilt.converged & corrected.converged), float("nan")), corrected.moments.probs


def _log_prob_of_mean(covariance: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probability that counts equal their mean, (groups,), and its gradient by the covariance."""
    conditional, inverse = _eliminate(covariance[:, :-1, :-1])  # the last class follows from the others
    log_factor, factor_slope = _chain_factors(conditional, z)
    slope = torch.bmm(inverse.transpose(1, 2), factor_slope[:, :, None] * inverse)
    return log_factor.sum(1), torch.nn.functional.pad(slope, (0, 1, 0, 1))


def _chain_factors(variance: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the conditional log-probability of each class's count, and its slope by the conditional variance.

    If all members are equal, the counts are multinomial, and each factor is binomial. The error of the difference of
    Poisson counts there is corrected in proportion to the conditional variance relative to that of the binomial.
    """
    after = z.sum(1, keepdim=True) - z.cumsum(1)[:, :-1]  # members of the classes after this one
    z = z[:, :-1]
    binomial_variance = z * after / (z + after)
    counts = torch.stack([z + after, z, after])
    total, first, rest = torch.lgamma(counts + 1).sub_(torch.xlogy(counts, counts))
    uncertain = binomial_variance > 0
    binomial_correction = total.sub_(first).sub_(rest).sub_(torch.special.i0e(binomial_variance).log_())
    binomial_correction = binomial_correction.div_(binomial_variance).where(uncertain, 0.0)
    factor = torch.special.i0e(variance)
    # The slope omits the correction: without it, its error against exact posteriors is two to three times smaller.
    slope = torch.special.i1e(variance).div_(factor).sub_(1)
    return factor.log_().addcmul_(variance, binomial_correction), slope.where(uncertain, 0.0)


def _eliminate(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Factorise covariances as L D L^T, class by class, and return the diagonal of D and the inverse of L."""
    root, failed = torch.linalg.cholesky_ex(covariance)
    pivots = root.diagonal(dim1=1, dim2=2)
    conditional, marginal = pivots.square(), covariance.diagonal(dim1=1, dim2=2)
    unit = torch.eye(covariance.shape[1], dtype=covariance.dtype, device=covariance.device)
    if not bool((failed > 0).any() | (conditional <= 1e-12 * marginal).any()):
        return conditional, torch.linalg.solve_triangular(root, unit, upper=False).mul_(pivots[:, :, None])
    conditional, unit_lower, rest = (
        torch.zeros_like(conditional),
        unit.repeat(len(covariance), 1, 1),
        covariance.clone(),
    )
    for j in range(covariance.shape[1]):
        pivot = rest[:, j, j]
        certain = pivot <= 1e-12 * marginal[:, j]  # a rounding error: the previous classes determine this one
        conditional[:, j] = pivot.masked_fill(certain, 0.0)
        factor = (rest[:, j + 1 :, j] / pivot[:, None]).masked_fill(certain[:, None], 0.0)
        unit_lower[:, j + 1 :, j] = factor
        rest[:, j + 1 :] -= factor[:, :, None] * rest[:, j, None, :]
    return conditional, torch.linalg.solve_triangular(unit_lower, unit, upper=False, unitriangular=True)
