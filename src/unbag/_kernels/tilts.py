"""Tilts: the shift of each class for which the expected counts of a group are the observed ones.

Newton's method on the logarithms of the expected counts finds it in three or four steps: where all members are alike,
these are linear in the shift, and the first step is exact. Where a classifier is confident and wrong, that may fail.
The tilt also minimises the convex function ``F(t) = sum_i logsumexp_j(scores_ij + t_j) - t . z``, whose gradient is the
expected counts less the observed ones, and the method of Levenberg and Marquardt never goes up. But the function is
then all but piecewise linear, the dual of an assignment problem with the scores as costs, and every bend can stop it.
With all scores divided by a high temperature the bends are round; following the minimum while the temperature falls to
one reaches it for any finite scores.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Numbers that one pass over members may hold, so that they stay in a processor's cache.
CHUNK = 2**18
# Expected counts may be off by this share of the members.
TOLERANCE = 1e-9
# Steps of Newton's method; then those after which a group is followed from a high temperature, and those it may take at
# the last one.
NEWTON_STEPS, FEW_STEPS, MANY_STEPS = 8, 20, 200


class Moments(NamedTuple):
    """Tilted members, and the counts that are expected of them."""

    log_sums: Tensor  # (groups, members), the logsumexp over classes
    probs: Tensor  # (groups, classes, members), the softmax
    expected: Tensor  # (groups, classes)


class Tilt(NamedTuple):
    """The tilt of each group, and what it leads to."""

    shift: Tensor  # (groups, classes)
    moments: Moments
    converged: Tensor  # (groups,)


def tilted_probs(scores: Tensor, shift: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the logsumexp of tilted scores over classes, and the softmax: (groups, [classes,] members)."""
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
    """Find the shift of each class for which the expected counts of each group are z.

    Parameters
    ----------
    scores
        Log-probabilities in float64, (groups, classes, members); every member has a class that is possible.
    weights
        1 for a member and 0 for padding, (groups, members); None where nothing is padded.
    z
        Counts, (groups, classes), in float64; scores of a class that is not there are ``-inf``.
    start
        Where to begin, (groups, classes).
    tolerance
        The share of the members by which an expected count may be off; one for all groups, or (groups,).
    """
    start = torch.zeros_like(z) if start is None else start
    allowed = tolerance * z.sum(1)
    tilt = _newton(scores, weights, z, start, allowed)
    for search in (_minimise, _cool):
        if bool(tilt.converged.all()):
            break
        again = (~tilt.converged).nonzero().flatten()
        better = search(
            scores[again], None if weights is None else weights[again], z[again], tilt.shift[again], allowed[again]
        )
        tilt.shift[again], tilt.converged[again] = better.shift, better.converged
        for old, new in zip(tilt.moments, better.moments, strict=True):
            old[again] = new
    return tilt


def covariances(probs: Tensor, weights: Tensor | None) -> Tensor:
    """Return how counts scatter, (groups, classes, classes)."""
    counted = probs if weights is None else probs * weights[:, None]
    covariance = torch.bmm(counted, probs.transpose(1, 2))
    # The diagonal is what the other entries of a row leave to zero: p - p^2 would have no digits left for p near one.
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    others = covariance.sum(2)
    covariance.neg_()
    diagonal.copy_(others)
    return covariance


def _newton(scores: Tensor, weights: Tensor | None, z: Tensor, shift: Tensor, allowed: Tensor) -> Tilt:
    """Solve ``log expected = log z`` by Newton's method, in each group as long as that comes nearer."""
    now = _moments(scores, weights, shift)
    off = (z - now.expected).abs().amax(1)
    todo = off > allowed
    room = torch.empty_like(scores)  # memory that is asked for anew in every step would cost as much as the step
    log_z, n_members, fixed = z.clamp_min(1).log_(), z.sum(1, keepdim=True), undetermined(z)
    for _ in range(NEWTON_STEPS):
        if not bool(todo.any()):
            break
        # Rows of the equations are multiplied by the expected counts, which makes the matrix the covariance.
        missing = torch.special.entr(now.expected).addcmul_(now.expected, log_z).mul_(todo[:, None])
        missing.addcmul_(now.expected, missing.sum(1, keepdim=True).div_(n_members), value=-1)
        new_shift = torch.linalg.solve_ex(covariances(now.probs, weights).add_(fixed), missing)[0].add_(shift)
        new = _moments(scores, weights, new_shift, room)
        new_off = (z - new.expected).abs_().amax(1)
        nearer = new_off <= torch.maximum(0.7 * off, allowed)
        if bool(nearer.all()):
            shift, now, off, room = new_shift, new, new_off, now.probs
        else:
            shift, off = _choose(nearer, new_shift, shift), _choose(nearer, new_off, off)
            now = Moments(*(_choose(nearer, *both) for both in zip(new, now, strict=True)))
        todo &= nearer & (off > allowed)
    return Tilt(shift, now, off <= allowed)


def undetermined(z: Tensor) -> Tensor:
    """Return what makes a covariance regular: a shift of all classes, or of one that is not there, changes nothing."""
    return torch.diag_embed((z == 0).to(z)).add_(1)


def _cool(scores: Tensor, weights: Tensor | None, z: Tensor, _: Tensor, allowed: Tensor) -> Tilt:
    """Follow the tilt from a temperature at which all classes are about as likely down to one."""
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
    """Minimise F by the method of Levenberg and Marquardt: Newton's where that helps, else ever longer steps."""
    now = _moments(scores, weights, shift)
    missing = z - now.expected
    damping, fixed = torch.full_like(allowed, 1e-4), undetermined(z)
    for _ in range(FEW_STEPS if n_steps is None else n_steps):
        todo = missing.abs().amax(1) > allowed
        if not bool(todo.any()):
            break
        system = covariances(now.probs, weights).add_(fixed)
        system.diagonal(dim1=1, dim2=2).add_(damping[:, None] * z)
        step = torch.linalg.solve(system, missing) * todo[:, None]
        new = _moments(scores, weights, shift + step)
        new_missing = z - new.expected
        change = (new.log_sums - now.log_sums).sum(1) - (step * z).sum(1)
        # Near the minimum the change of its value is all rounding; then the smaller gradient decides.
        rounding = 1e-15 * now.log_sums.abs().sum(1)
        better = (change < -rounding) | ((change <= rounding) & (new_missing.norm(dim=1) < missing.norm(dim=1)))
        damping = torch.where(better, damping / 10, damping * 10).clamp_(1e-10, 1e10)
        if bool((better | ~todo).all()):
            shift, missing, now = shift + step, new_missing, new
        else:
            shift, missing = _choose(better, shift + step, shift), _choose(better, new_missing, missing)
            now = Moments(*(_choose(better, *both) for both in zip(new, now, strict=True)))
    return Tilt(shift, now, missing.abs().amax(1) <= allowed)


def _choose(where: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(where.view(-1, *[1] * (new.ndim - 1)), new, old)


def _moments(scores: Tensor, weights: Tensor | None, shift: Tensor, room: Tensor | None = None) -> Moments:
    room = torch.empty_like(scores) if room is None else room
    log_sums, expected = [], []
    n_members = max(1, CHUNK // shift.numel())
    for start in range(0, scores.shape[2], n_members):
        some = slice(start, start + n_members)
        log_sum, probs = tilted_probs(scores[:, :, some], shift, room[:, :, some])
        log_sums.append(log_sum if weights is None else log_sum * weights[:, some])
        expected.append((probs if weights is None else probs * weights[:, None, some]).sum(2))
    if len(log_sums) == 1:
        return Moments(log_sums[0], room, expected[0])
    return Moments(torch.cat(log_sums, 1), room, torch.stack(expected).sum(0))
