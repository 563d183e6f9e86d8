"""The shift of each class for which the members and the weights of a group agree on the expected counts.

It minimises ``sum_i logsumexp_j(log_probs_ij + t_j) + sum_j logsumexp_c(log_weights_jc - c t_j)``, whose gradient is
the difference of both expectations. The function is convex; the method of Levenberg and Marquardt never increases it.
Where a classifier is confident, it is almost piecewise linear, and is minimised first at a high temperature, at which
it is smooth; the minimum is followed while the temperature decreases to one, as in :mod:`unbag._kernels.tilts`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unbag._kernels.logspace import normalise
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import to_covariance_

MAX_STEPS = 30
TOLERANCE = 1e-3
"""Difference of expected counts, in members, at which the minimum is found."""
SMOOTH_SPAN = 4.0
"""Range of log-probabilities for which no temperature is needed."""
COOLING = 3.0
"""Ratio of a temperature to the next one."""


def find_weighted_tilt(log_probs: Tensor, segments: Segments, log_weights: Tensor) -> Tensor:
    """Find the shift of each class, (groups, k)."""
    tilt = torch.zeros_like(log_weights[..., 0])
    finite = log_probs.masked_fill(log_probs == float("-inf"), 0.0)
    temperature = (segments.amax(-finite.amin(1)) / SMOOTH_SPAN).clamp_min(1.0)  # (groups,)
    while True:
        tilt = _minimise(log_probs, segments, log_weights, tilt, temperature[:, None])
        if not bool((temperature > 1).any()):
            return tilt
        temperature = (temperature / COOLING).clamp_min(1.0)


def _minimise(log_probs: Tensor, segments: Segments, log_weights: Tensor, tilt: Tensor, temperature: Tensor) -> Tensor:
    counts = torch.arange(log_weights.shape[2]).to(tilt)
    members_temperature = segments.expand(temperature)

    def evaluate(tilt: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the value in each group, the difference of expected counts, and the matrix of second derivatives."""
        log_sums, probs = normalise((log_probs + segments.expand(tilt)) / members_temperature)
        log_scales, shares = normalise((log_weights - counts * tilt[..., None]) / temperature[..., None])
        mean = shares @ counts
        hessian = covariance_of_counts(probs, segments)
        hessian.diagonal(dim1=1, dim2=2).add_(shares @ counts.square() - mean.square())
        return segments.sum(log_sums) + log_scales.sum(1), mean - segments.sum(probs), hessian

    value, missing, hessian = evaluate(tilt)
    damping = torch.full_like(value, 1e-3)
    for _ in range(MAX_STEPS):
        todo = missing.abs().amax(1) > TOLERANCE
        if not bool(todo.any()):
            break
        damped = hessian.clone()
        damped.diagonal(dim1=1, dim2=2).mul_(1 + damping[:, None]).add_(1e-9)
        step = torch.linalg.solve_ex(damped, missing[..., None])[0][..., 0]
        trial = tilt + temperature * step * todo[:, None]
        new = evaluate(trial)
        better = (new[0] < value) & todo
        damping = torch.where(better, damping / 5, damping * 5)
        tilt = torch.where(better[:, None], trial, tilt)
        value, missing = torch.where(better, new[0], value), torch.where(better[:, None], new[1], missing)
        hessian = torch.where(better[:, None, None], new[2], hessian)
    return tilt


def covariance_of_counts(probs: Tensor, segments: Segments) -> Tensor:
    """Return the covariance of the counts of independent members, (groups, k, k)."""
    k = probs.shape[1]
    if segments.uniform_size is not None:
        table = probs.reshape(len(segments), -1, k)
        return to_covariance_(table.mT @ table)
    products = probs.new_zeros(len(segments), k, k)
    first, second = torch.triu_indices(k, k, 1, device=probs.device)
    products[:, first, second] = products[:, second, first] = segments.sum(probs[:, first] * probs[:, second])
    return to_covariance_(products)
