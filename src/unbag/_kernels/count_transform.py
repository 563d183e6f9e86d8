"""Counts of several classes, exactly, by inverting their characteristic function.

The probability of counts z is a coefficient of the polynomial ``prod_i sum_j p_ij x_j`` in one variable per class: the
mean of the polynomial times ``prod_j x_j^-z_j`` over all points whose coordinates are roots of unity. With ``z_j + 1``
roots for a class, other counts that the mean does not distinguish from z would have more members than z_j in some class
and fewer in none, which is impossible. The class of the smallest count follows from the others and needs no variable.
No formula of this kind has fewer points, and as conjugate points have conjugate values, half of them suffice.

Three steps make it exact and fast. First, the log-probabilities of all members are tilted by a common shift per class
until the expected counts are z; the probability of z is then at least that for equal members, far above the precision
of float64. Second, a point is a pair of points over two halves of the classes, so that the factor of a member is the
sum of two short tables. Third, the factors of members are multiplied as a binary tree, which also yields the products
without one member, and with them the posterior.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.blocks import infer_in_blocks
from unbag._kernels.boxes import boxes
from unbag._kernels.count_states import infer_weighted_states, weigh_exactly
from unbag._kernels.segments import Segments
from unbag._kernels.tilts import find_tilt

# Maximum number of values of a table of factors, which then fits in the cache of a CPU.
CHUNK = 2**17
# Probability of the counts after tilting below which the result would lose digits.
MIN_PROBABILITY = 1e-9


def infer_counts_by_transform(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the results of :func:`infer_in_blocks` exactly."""
    return infer_in_blocks(log_probs, segments, z, _infer_block)


def _infer_block(scores: Tensor, weights: Tensor | None, z: Tensor) -> tuple[Tensor, Tensor]:
    # Any tilt gives the same result; an approximate one gives a well-conditioned sum.
    shift, (log_sums, probs, *_), _ = find_tilt(scores, weights, z, tolerance=1e-2)
    if weights is not None:
        probs = probs * weights[:, None]
    scale = log_sums.sum(1) - (shift * z).sum(1)
    log_total, posterior = torch.empty_like(scale), torch.zeros_like(probs)
    buffer = torch.empty(2, CHUNK, dtype=torch.complex128, device=z.device)
    for which, largest, by_transform in boxes(z, scores.shape[2]):
        present = slice(-len(largest), None)  # the classes that occur
        lost = which
        if by_transform:
            box_probs = probs[which, present]
            if weights is not None:
                box_probs[:, 0] += 1 - weights[which]  # padding is of the class without a variable: a factor of one
            result = _invert(box_probs, z[which, present], points(largest, z.device), buffer)
            total, posterior[which, present] = result
            log_total[which] = total.log() + scale[which]
            lost = which[total < MIN_PROBABILITY]
        if len(lost):
            lost_weights = None if weights is None else weights[lost]
            by_states = _infer_by_states(scores[lost, present], lost_weights, z[lost, present], largest)
            log_total[lost], posterior[lost, present] = by_states
    if weights is not None:
        posterior = torch.where(weights[:, None] > 0, posterior, posterior[:, :, :1])  # padding repeats the first
    return log_total, posterior


def _infer_by_states(
    scores: Tensor, weights: Tensor | None, z: Tensor, largest: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Compute log-probability and posterior by count states, without tilts."""
    members = scores.transpose(1, 2)  # (groups, members, classes)
    real = torch.ones_like(members[:, :, 0], dtype=torch.bool) if weights is None else weights > 0
    columns = torch.arange(len(largest), device=z.device).expand(len(z), -1)
    segments, log_weights = Segments.from_sizes(real.sum(1)), weigh_exactly(z.long())
    log_total, flat = infer_weighted_states(members[real], segments, columns, log_weights, largest)
    posterior = torch.zeros_like(members)
    posterior[real] = flat
    return log_total, posterior.transpose(1, 2)


class Half(NamedTuple):
    """Points over half of the classes: a root of unity for each class."""

    classes: slice
    dtype: torch.dtype  # of the roots: real if the roots of both halves are real, else complex
    angles: Tensor  # (classes, points)
    roots: Tensor  # (classes, points), or (classes, 2 points) with alternating real and imaginary parts
    weights: Tensor  # (points,), the share of all points that each represents


@lru_cache(maxsize=1024)
def points(largest: tuple[int, ...], device: torch.device) -> tuple[Half, Half]:
    """Return the two halves of the points for largest counts of the classes in ascending order."""
    n_roots = np.array(largest[1:]) + 1
    split = 1 + int(np.searchsorted(n_roots.cumprod(), n_roots.prod() ** 0.5))  # about as many points in each half
    is_real = bool((n_roots <= 2).all())
    upper, lower = slice(split, len(largest)), slice(1, split)
    return (
        _half(n_roots[split - 1 :], upper, device, is_real=is_real, fold=True),
        _half(n_roots[: split - 1], lower, device, is_real=is_real, fold=False),
    )


def _half(n_roots: np.ndarray, classes: slice, device: torch.device, *, is_real: bool, fold: bool) -> Half:
    n_points = int(n_roots.prod())
    powers = np.indices(tuple(n_roots)).reshape(len(n_roots), n_points)
    multiplicity = np.ones(n_points)
    if fold:  # the first of two conjugates is kept
        conjugate = np.ravel_multi_index(tuple(-powers % n_roots[:, None]), tuple(n_roots))
        multiplicity = 1.0 + np.sign(conjugate - np.arange(n_points))
    kept = multiplicity > 0
    angles = 2 * np.pi * powers[:, kept] / n_roots[:, None]
    parts = [np.cos(angles).round()] if is_real else [np.cos(angles), np.sin(angles)]
    roots = np.stack(parts, -1).reshape(len(n_roots), len(parts) * angles.shape[1])
    tensors = (torch.from_numpy(table).to(device) for table in (angles, roots, multiplicity[kept] / n_points))
    return Half(classes, torch.float64 if is_real else torch.complex128, *tensors)


def _invert(probs: Tensor, z: Tensor, halves: tuple[Half, Half], buffer: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the probability of z, (groups,), and the posterior, (groups, classes, members), for z near the mean."""
    members = probs.permute(2, 0, 1).contiguous()  # (members, groups, classes)
    first, second = halves
    (size, n_groups, _), n_second = members.shape, len(second.weights)
    factors_1, factors_2 = (
        (members[:, :, half.classes] @ half.roots).view(half.dtype) for half in halves
    )  # (members, groups, points)
    factors_2 += members[:, :, :1]
    phases_1, phases_2 = (_phases(z[:, half.classes] @ half.angles, half) for half in halves)  # (groups, points)
    sums_1, sums_2 = torch.empty_like(factors_1), torch.zeros_like(factors_2)
    if size * n_second > CHUNK:
        buffer = buffer.new_empty(2, size * n_second)
    if not factors_1.is_complex():
        buffer = buffer.view(torch.float64)
    for groups, part in _chunks(size, n_groups, len(first.weights), n_second):
        phases = phases_1[groups, part, None] * phases_2[groups, None]  # (groups, points of each half)
        factors, others = buffer[:, : size * phases.numel()].view(2, size, *phases.shape).unbind()
        torch.add(factors_1[:, groups, part, None], factors_2[:, groups, None], out=factors)
        _products_of_others(factors, phases, out=others)
        sums_1[:, groups, part] = others.sum(3)
        sums_2[:, groups] += others.sum(2)
    effects_1, effects_2 = (  # the real parts of sums times roots
        sums.conj_physical().view(members.dtype) @ half.roots.t()
        for sums, half in zip((sums_1, sums_2), halves, strict=True)
    )
    joint = torch.cat([sums_2.sum(2, keepdim=True).real, effects_2, effects_1], 2) * members
    joint.clamp_min_(0.0)  # removes negative rounding errors
    totals = joint.sum(2, keepdim=True)
    return totals[0, :, 0], (joint / totals).permute(1, 2, 0)


def _phases(angles: Tensor, half: Half) -> Tensor:
    if half.dtype.is_complex:
        return torch.polar(half.weights.expand_as(angles), -angles)
    return angles.cos() * half.weights


def _chunks(size: int, n_groups: int, n_first: int, n_second: int) -> Iterator[tuple[slice, slice]]:
    """Split the groups, and the points of the first half if a single group is too large."""
    groups = max(1, CHUNK // (size * n_first * n_second))
    points = max(1, CHUNK // (size * n_second)) if groups == 1 else n_first
    for group in range(0, n_groups, groups):
        for point in range(0, n_first, points):
            yield slice(group, group + groups), slice(point, point + points)


def _products_of_others(factors: Tensor, root: Tensor, out: Tensor) -> None:
    """Write the products without each member, times ``root``: (members, ...)."""
    n = factors.shape[0]
    if n <= 2:
        out[-1] = root
        if n == 2:
            torch.mul(factors[1], root, out=out[0])
            out[1] *= factors[0]
        return
    half, even = n // 2, n // 2 * 2
    left, right = factors[:half], factors[half:even]
    # Intermediate products fit into ``out``, unless the number of members is odd.
    pairs, others = (out if n == even else out.new_empty(n + 1, *out.shape[1:])).split(n - half)
    torch.mul(left, right, out=pairs[:half])
    pairs[half:] = factors[even:]
    _products_of_others(pairs, root, others)
    torch.mul(others[:half], right, out=out[:half])
    torch.mul(others[:half], left, out=out[half:even])
    out[even:] = others[half:]
