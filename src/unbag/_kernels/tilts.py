"""Tilts: the shift of each class for which the expected counts of a group equal the observed ones.

Newton's method on the logarithms of the expected counts needs three or four steps: if all members are equal, they are
linear in the shift, and the first step is exact. Where a classifier is confident and wrong, it may fail. The tilt also
minimises the convex function ``F(t) = sum_i logsumexp_j(scores_ij + t_j) - t . z``, whose gradient is the difference of
expected and observed counts, and the method of Levenberg and Marquardt never increases it. In that case, however, F is
almost piecewise linear, the dual of an assignment problem with the scores as costs, and the method can stop at any of
its bends. A high temperature, by which all scores are divided, makes F smooth; the minimum is then followed while the
temperature decreases to one, which works for any finite scores.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Maximum number of values of a pass over members, which then fit in the cache of a CPU.
CHUNK = 2**18
# Maximum error of expected counts as a share of the members.
TOLERANCE = 1e-9
# Steps of Newton's method; of minimisation, before annealing and at each temperature; at the last temperature.
NEWTON_STEPS, FEW_STEPS, MANY_STEPS = 8, 20, 200


class Moments(NamedTuple):
    """Tilted members and their expected counts."""

    log_sums: Tensor  # (groups, members), the logsumexp over classes
    probs: Tensor  # (groups, classes, members), the softmax
    expected: Tensor  # (groups, classes)


class Tilt(NamedTuple):
    """The tilt of each group, and the tilted members."""

    shift: Tensor  # (groups, classes)
    moments: Moments
    converged: Tensor  # (groups,)


def tilted_probs(scores: Tensor, shift: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute the logsumexp and the softmax of tilted scores over classes: (groups, [classes,] members)."""
    tilted = torch.add(scores, shift[:, :, None], out=out)
    top = tilted.amax(1, keepdim=True)
    probs = tilted.sub_(top).exp_()
    total = probs.sum(1, keepdim=True)
    return total.log().add_(top).squeeze(1), probs.div_(total)


def find_tilt(
    scores: Tensor,
    weights: Tensor | None,
    z: Tensor,
    start: Tensor | None = None,
    tolerance: float | Tensor = TOLERANCE,
) -> Tilt:
    """Find the shift of each class for which the expected counts of each group equal z.

    Parameters
    ----------
    scores
        Log-probabilities, (groups, classes, members), ``-inf`` for a class with count 0.
        Each member has a possible class.
    weights
        1 for a member and 0 for padding, (groups, members); None without padding.
    z
        Counts, (groups, classes), in float64.
    start
        Initial shift, (groups, classes).
    tolerance
        Maximum error of an expected count as a share of the members; a number, or (groups,).
    """
    start = torch.zeros_like(z) if start is None else start
    allowed = tolerance * z.sum(1)
    tilt = _newton(scores, weights, z, start, allowed)
    for search in (_minimise, _anneal):
        if bool(tilt.converged.all()):
            break
        which = (~tilt.converged).nonzero().flatten()
        some_weights = None if weights is None else weights[which]
        better = search(scores[which], some_weights, z[which], tilt.shift[which], allowed[which])
        tilt.shift[which], tilt.converged[which] = better.shift, better.converged
        for old, new in zip(tilt.moments, better.moments, strict=True):
            old[which] = new
    return tilt


def covariances(probs: Tensor, weights: Tensor | None) -> Tensor:
    """Compute the covariance of counts, (groups, classes, classes)."""
    weighted = probs if weights is None else probs * weights[:, None]
    return to_covariance_(torch.bmm(weighted, probs.transpose(1, 2)))


def to_covariance_(products: Tensor) -> Tensor:
    """Convert sums of products of probabilities to covariances of counts, in place: (groups, classes, classes)."""
    # Rows of a covariance sum to zero. As p - p^2, the diagonal would lose all digits for p near one.
    diagonal = products.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    others = products.sum(2)
    products.neg_()
    diagonal.copy_(others)
    return products


def _newton(scores: Tensor, weights: Tensor | None, z: Tensor, shift: Tensor, allowed: Tensor) -> Tilt:
    """Solve ``log expected = log z`` by Newton's method, in each group as long as the error decreases."""
    moments = _compute_moments(scores, weights, shift)
    error = (z - moments.expected).abs().amax(1)
    todo = error > allowed
    buffer = torch.empty_like(scores)  # reused, as allocation in each step would take as long as the step
    log_z, n_members, fixed = z.clamp_min(1).log_(), z.sum(1, keepdim=True), undetermined(z)
    for _ in range(NEWTON_STEPS):
        if not bool(todo.any()):
            break
        # The rows of the equations are multiplied by the expected counts, so that the matrix is the covariance.
        missing = torch.special.entr(moments.expected).addcmul_(moments.expected, log_z).mul_(todo[:, None])
        missing.addcmul_(moments.expected, missing.sum(1, keepdim=True).div_(n_members), value=-1)
        new_shift = torch.linalg.solve_ex(covariances(moments.probs, weights).add_(fixed), missing)[0].add_(shift)
        new = _compute_moments(scores, weights, new_shift, buffer)
        new_error = (z - new.expected).abs_().amax(1)
        better = new_error <= torch.maximum(0.7 * error, allowed)
        if bool(better.all()):
            shift, moments, error, buffer = new_shift, new, new_error, moments.probs
        else:
            shift, error = _choose(better, new_shift, shift), _choose(better, new_error, error)
            moments = Moments(*(_choose(better, *pair) for pair in zip(new, moments, strict=True)))
        todo &= better & (error > allowed)
    return Tilt(shift, moments, error <= allowed)


def undetermined(z: Tensor) -> Tensor:
    """Return a matrix that makes a covariance regular, for shifts of all classes or of absent ones have no effect."""
    return torch.diag_embed((z == 0).to(z)).add_(1)


def _anneal(scores: Tensor, weights: Tensor | None, z: Tensor, _: Tensor, allowed: Tensor) -> Tilt:
    """Follow the tilt from a temperature at which all classes are about equally likely down to one."""
    lowest = scores.where(scores > float("-inf"), float("inf")).amin(1)
    temperature = ((scores.amax(1) - lowest).amax(1) / 4).clamp_min(1.0)  # (groups,)
    shift = torch.zeros_like(z)
    while bool((temperature > 1).any()):
        scale = temperature[:, None]
        divided = scores / scale[:, :, None]
        shift = scale * _minimise(divided, weights, z, shift / scale, 1e-3 * z.sum(1)).shift
        temperature = (temperature / 3).clamp_min(1.0)
    return _minimise(scores, weights, z, shift, allowed, n_steps=MANY_STEPS)


def _minimise(
    scores: Tensor, weights: Tensor | None, z: Tensor, shift: Tensor, allowed: Tensor, *, n_steps: int | None = None
) -> Tilt:
    """Minimise F by the method of Levenberg and Marquardt."""
    moments = _compute_moments(scores, weights, shift)
    missing = z - moments.expected
    damping, fixed = torch.full_like(allowed, 1e-4), undetermined(z)
    for _ in range(FEW_STEPS if n_steps is None else n_steps):
        todo = missing.abs().amax(1) > allowed
        if not bool(todo.any()):
            break
        system = covariances(moments.probs, weights).add_(fixed)
        system.diagonal(dim1=1, dim2=2).add_(damping[:, None] * z)
        step = torch.linalg.solve(system, missing) * todo[:, None]
        new = _compute_moments(scores, weights, shift + step)
        new_missing = z - new.expected
        change = (new.log_sums - moments.log_sums).sum(1) - (step * z).sum(1)
        # Near the minimum the change of F is a rounding error; then the norm of the gradient decides.
        rounding = 1e-15 * moments.log_sums.abs().sum(1)
        better = (change < -rounding) | ((change <= rounding) & (new_missing.norm(dim=1) < missing.norm(dim=1)))
        damping = torch.where(better, damping / 10, damping * 10).clamp_(1e-10, 1e10)
        if bool((better | ~todo).all()):
            shift, missing, moments = shift + step, new_missing, new
        else:
            shift, missing = _choose(better, shift + step, shift), _choose(better, new_missing, missing)
            moments = Moments(*(_choose(better, *pair) for pair in zip(new, moments, strict=True)))
    return Tilt(shift, moments, missing.abs().amax(1) <= allowed)


def _choose(where: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(where.view(-1, *[1] * (new.ndim - 1)), new, old)


def _compute_moments(scores: Tensor, weights: Tensor | None, shift: Tensor, out: Tensor | None = None) -> Moments:
    out = torch.empty_like(scores) if out is None else out
    log_sums, expected = [], []
    n_members = max(1, CHUNK // shift.numel())
    for start in range(0, scores.shape[2], n_members):
        part = slice(start, start + n_members)
        log_sum, probs = tilted_probs(scores[:, :, part], shift, out[:, :, part])
        log_sums.append(log_sum if weights is None else log_sum * weights[:, part])
        expected.append((probs if weights is None else probs * weights[:, None, part]).sum(2))
    if len(log_sums) == 1:
        return Moments(log_sums[0], out, expected[0])
    return Moments(torch.cat(log_sums, 1), out, torch.stack(expected).sum(0))
