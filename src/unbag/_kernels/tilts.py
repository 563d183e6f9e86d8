"""Tilts: the shift of each class for which the expected counts of a group equal the observed or the probable ones.

Newton's method on the logarithms of the expected counts needs three or four steps: if all members are equal, they are
linear in the shift, and the first step is exact. Where a classifier is confident and wrong, it may fail. The tilt also
minimises the convex function ``F(t) = sum_i logsumexp_j(scores_ij + t_j) - t . z``, whose gradient is the difference of
expected and observed counts, and the method of Levenberg and Marquardt never increases it. In that case, however, F is
almost piecewise linear, the dual of an assignment problem with the scores as costs, and the method can stop at any of
its bends. A high temperature, by which all scores are divided, makes F smooth; the minimum is then followed while the
temperature decreases to one, which works for any finite scores.

Weighted counts replace the term ``- t . z`` by ``sum_j logsumexp_c(log_weights_jc - c t_j)``.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unbag._kernels.logspace import normalise
from unbag._kernels.segments import Segments

# Maximum number of values of a pass over members, which then fit in the cache of a CPU.
CHUNK = 2**18
# Maximum error of expected counts as a share of the members.
TOLERANCE = 1e-9
# Difference of expected counts, in members, at which the tilt of weighted counts is found.
WEIGHTED_TOLERANCE = 1e-3
# Range of log-probabilities for which no temperature is needed, the ratio of a temperature to the next one, and the
# maximum error of expected counts, as a share of the members, at temperatures above one.
SMOOTH_SPAN, COOLING, ROUGH_TOLERANCE = 4.0, 3.0, 1e-3
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
    """Find the shift of each class for which the expected counts of each group equal z, (groups, classes), in float64.

    The log-probabilities, (groups, classes, members), are ``-inf`` for a class with count 0, and each member has a
    possible class. The tolerance is the maximum error of an expected count as a share of the members.
    """
    start = torch.zeros_like(z) if start is None else start
    allowed = tolerance * z.sum(1)
    tilt = _newton(scores, weights, z, start, allowed)
    for anneal in (False, True):
        if not bool((lost := ~tilt.converged).any()):
            break
        real = torch.ones_like(scores[lost, 0], dtype=torch.bool) if weights is None else weights[lost] > 0

        def evaluate_counts(shift: Tensor, scale: Tensor, counts: Tensor = z[lost]) -> tuple[Tensor, Tensor, Tensor]:
            return -(shift * counts).sum(1) / scale[:, 0], counts, torch.zeros_like(counts)

        members, segments = scores[lost].transpose(1, 2)[real], Segments.from_sizes(real.sum(1))
        first = torch.zeros_like(z[lost]) if anneal else tilt.shift[lost]
        tilt.shift[lost], tilt.converged[lost] = _search(
            members, segments, evaluate_counts, first, allowed[lost], anneal=anneal
        )
        moments = _compute_moments(scores[lost], None if weights is None else weights[lost], tilt.shift[lost])
        for old, new in zip(tilt.moments, moments, strict=True):
            old[lost] = new
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


def find_weighted_tilt(log_probs: Tensor, segments: Segments, log_weights: Tensor) -> Tensor:
    """Find the shift of each class, (groups, k), for which members and weights agree on the expected counts.

    It minimises ``sum_i logsumexp_j(log_probs_ij + t_j) + sum_j logsumexp_c(log_weights_jc - c t_j)``.
    """
    counts = torch.arange(log_weights.shape[2]).to(log_weights)

    def evaluate_weights(tilt: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_scales, shares = normalise((log_weights - counts * tilt[..., None]) / temperature[..., None])
        mean = shares @ counts
        return log_scales.sum(1), mean, shares @ counts.square() - mean.square()

    allowed = torch.full_like(log_weights[:, 0, 0], WEIGHTED_TOLERANCE)
    first = torch.zeros_like(log_weights[..., 0])
    return _search(log_probs, segments, evaluate_weights, first, allowed, anneal=True)[0]


EvaluateCounts = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From tilts (groups, k) and temperatures (groups, 1) to the second term of F divided by the temperature (groups,), and
the expectation and the variance of the counts (groups, k)."""
Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""From the same to F, the size of its terms, differences of expected counts, and the second derivatives."""


def _search(
    log_probs: Tensor,
    segments: Segments,
    evaluate_counts: EvaluateCounts,
    tilt: Tensor,
    allowed: Tensor,
    *,
    anneal: bool,
) -> tuple[Tensor, Tensor]:
    """Minimise F, from a temperature at which it is smooth down to one, and return the tilt and where it was found."""

    def evaluate(tilt: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        log_sums, probs = normalise((log_probs + segments.expand(tilt)) / segments.expand(scale))
        log_scales, mean, variance = evaluate_counts(tilt, scale)
        hessian = covariance_of_counts(probs, segments)
        hessian.diagonal(dim1=1, dim2=2).add_(variance)
        value = segments.sum(log_sums)
        return value + log_scales, value.abs() + log_scales.abs(), mean - segments.sum(probs), hessian

    if not anneal:
        return _minimise(evaluate, tilt, torch.ones_like(allowed)[:, None], allowed, FEW_STEPS)
    finite = log_probs.masked_fill(log_probs == float("-inf"), 0.0)
    scale = (segments.amax(finite.amax(1) - finite.amin(1)) / SMOOTH_SPAN).clamp_min(1.0)[:, None]
    while bool((scale > 1).any()):
        rough = allowed.maximum(ROUGH_TOLERANCE * segments.sizes)
        tilt, _ = _minimise(evaluate, tilt, scale, rough, FEW_STEPS)
        scale = (scale / COOLING).clamp_min(1.0)
    return _minimise(evaluate, tilt, scale, allowed, MANY_STEPS)


def _minimise(evaluate: Evaluate, tilt: Tensor, scale: Tensor, allowed: Tensor, n_steps: int) -> tuple[Tensor, Tensor]:
    """Minimise F by the method of Levenberg and Marquardt, and return the tilt and where it was found."""
    state = evaluate(tilt, scale)
    damping = torch.full_like(allowed, 1e-4)
    for _ in range(n_steps):
        value, size, missing, hessian = state
        todo = missing.abs().amax(1) > allowed
        if not bool(todo.any()):
            break
        damped = hessian.clone()
        damped.diagonal(dim1=1, dim2=2).add_(damping[:, None] * (1 + hessian.diagonal(dim1=1, dim2=2)) + 1e-12)
        step = torch.linalg.solve_ex(damped, missing[..., None])[0][..., 0]
        trial = tilt + scale * step * todo[:, None]
        new = evaluate(trial, scale)
        # Near the minimum the change of F is a rounding error; then the norm of the gradient decides.
        change, rounding = new[0] - value, 1e-15 * size
        better = (change < -rounding) | ((change <= rounding) & (new[2].norm(dim=1) < missing.norm(dim=1)))
        damping = torch.where(better, damping / 10, damping * 10).clamp_(1e-10, 1e10)
        tilt = _choose(better, trial, tilt)
        state = tuple(_choose(better, *pair) for pair in zip(new, state, strict=True))
    return tilt, state[2].abs().amax(1) <= allowed


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
