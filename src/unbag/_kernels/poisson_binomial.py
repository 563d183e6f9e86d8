"""Counts of two classes, exact or weighted by published counts, exactly, for groups of any size.

The count of independent members with unequal probabilities has the Poisson-binomial distribution. Its probability at z
is a trapezoidal sum over the characteristic function, which two steps make short and exact. First, the log-odds of all
members are shifted by a common tilt until the expected count is z: the probability of z is then of the order of one
over the standard deviation, however unlikely z was, and the tilt is removed again in log space. Second, a sum over N
frequencies is the sum of the probabilities of z, z + N, z - N, ...; around a mean of z all but the first are negligible
if N exceeds about nine standard deviations, and only low frequencies are not negligible. Some 15 to 35 remain for any
size, so that the cost depends on the number of members only.

The weights of counts are log-concave, as intervals, Laplace and normal noise and their products are, and so is the
distribution of counts. Their product has one peak. If the tilt is the slope of the log-weights at the tilted mean, the
tilted weights also have their peak there, with the value one, and the transform of the weights replaces that of a
single count.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unbag._kernels.blocks import blocks
from unbag._kernels.segments import Segments
from unbag._utils.parts import join

LogWeight = Callable[[Tensor], Tensor]
"""From counts, (groups, n), to the logarithms of their weights, ``-inf`` outside of an interval."""

# Relative probabilities below e^-44 are lost in float64.
NEGLIGIBLE = 44.0
# Maximum number of values of a table of frequencies and members, which then fits in the cache of a CPU.
CHUNK = 2**17


def infer_two_counts(log_no: Tensor, log_yes: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the log-weight of exactly z yeses in each group, and the posterior of yes.

    The log-weights of the two labels of each membership, (memberships,), need not be normalised.
    """
    z = z.double()
    log_total, posterior, _ = infer_weighted_counts(
        log_no.double(), log_yes.double(), segments, (z, z), torch.zeros_like
    )
    return log_total, posterior


def infer_weighted_counts(
    log_no: Tensor, log_yes: Tensor, segments: Segments, bounds: tuple[Tensor, Tensor], log_weight: LogWeight
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the log of the sum over counts of probability times weight, and the posterior of yes.

    The third result is the tilt of each group, (groups,), the shift of log-odds that moves the expected count near the
    peak. Log-probabilities of the two labels, (memberships,), are in float64. ``bounds`` are the smallest and the
    largest number of yeses with a weight, (groups,), between which the log-weights are concave.
    """
    never_no, never_yes = log_no == float("-inf"), log_yes == float("-inf")
    neither = never_no & never_yes
    odds = (log_yes - log_no).masked_fill_(neither, 0.0)
    # Members with a single possible label bound the count; other counts have probability zero.
    low = torch.maximum(bounds[0], segments.sum(never_no.double()))
    high = torch.minimum(bounds[1], segments.sizes - segments.sum(never_yes.double()))
    impossible = (low > high) | (segments.sum(neither.double()) > 0)
    if bool(impossible.any()):
        low, high = (torch.where(impossible, 0.0, bound) for bound in (low, high))
    exact = torch.equal(low, high)
    peak, tilt = (low, find_tilt(odds, segments, low)) if exact else _find_peak(odds, segments, low, high, log_weight)
    probs = (odds + segments.expand(tilt)).sigmoid()
    around, reach = None, torch.zeros_like(low)
    if not exact:
        farthest = farthest_count(segments.sum(probs * (1 - probs))).clamp_max(segments.max_size)
        bounds = low.maximum(peak - farthest), high.minimum(peak + farthest)
        around, reach = _weights_around(peak, tilt, bounds, log_weight)
    total, posterior = invert(probs, segments, peak, around, reach)
    scale = segments.sum(torch.logaddexp(log_no, log_yes + segments.expand(tilt))) - tilt * peak
    log_total = total.log() + scale + log_weight(peak[:, None])[:, 0]
    return log_total.masked_fill(impossible, float("-inf")), posterior, tilt


def _find_peak(
    odds: Tensor, segments: Segments, low: Tensor, high: Tensor, log_weight: LogWeight
) -> tuple[Tensor, Tensor]:
    """Find the tilt that equals the slope of the log-weights at the tilted mean, and the count at that mean.

    Between counts j and j + 1 the slope is the difference of their log-weights. The slope decreases with j, and so does
    the mean that it leads to. One evaluation therefore decides on which side of j the peak is: a bisection.
    """

    def slope(count: Tensor) -> Tensor:
        return log_weight(torch.stack([count, count + 1], 1)).diff(dim=1)[:, 0]

    first, last = low, high
    tilt, between = torch.zeros_like(low), torch.zeros_like(low, dtype=torch.bool)
    mean = torch.zeros_like(low)
    while bool((todo := (first < last) & ~between).any()):
        count = ((first + last) / 2).floor().minimum(last - 1).maximum(first)
        trial = torch.where(todo, slope(count), tilt)
        mean = torch.where(todo, segments.sum((odds + segments.expand(trial)).sigmoid()), mean)
        more, less = todo & (mean > count + 1), todo & (mean < count)
        first, last = torch.where(more, count + 1, first), torch.where(less, count, last)
        reached = todo & ~more & ~less
        tilt, between, first = torch.where(reached, trial, tilt), between | reached, torch.where(reached, count, first)
    at_count = find_tilt(odds, segments, torch.where(between, mean, first))
    # At a bound the slope is limited on one side only; beyond the limits the weights would have another peak.
    least = torch.where(first < high, slope(first.minimum(high - 1)), float("-inf"))
    most = torch.where(first > low, slope((first - 1).maximum(low)), float("inf"))
    return first, torch.where(between, tilt, at_count.maximum(least).minimum(most))


def _weights_around(
    peak: Tensor, tilt: Tensor, bounds: tuple[Tensor, Tensor], log_weight: LogWeight
) -> tuple[Tensor, Tensor]:
    """Return the tilted weights of counts around the peak, (groups, 2 w + 1), and their reach in each group.

    Bounds are those of the counts that are possible and not negligible.
    """
    half = int(torch.maximum(peak - bounds[0], bounds[1] - peak).nan_to_num(nan=0.0).max())
    offset = torch.arange(-half, half + 1).to(peak)
    counts = peak[:, None] + offset
    log_around = log_weight(counts) - log_weight(peak[:, None]) - tilt[:, None] * offset
    negligible = (log_around < -NEGLIGIBLE) | (counts < bounds[0][:, None]) | (counts > bounds[1][:, None])
    reach = (offset.abs() * ~negligible).amax(1)
    half_used = int(reach.max())
    used = slice(half - half_used, half + half_used + 1)
    return log_around.exp().masked_fill_(negligible, 0.0)[:, used], reach


def find_tilt(odds: Tensor, segments: Segments, z: Tensor) -> Tensor:
    """Find the shift of log-odds for which the expected number of yeses of each group is close to z.

    Any shift gives an exact result; one that moves the mean within a tenth of a standard deviation of z gives a
    well-conditioned sum. Newton's method, restricted to a shrinking bracket. Where z is 0 or the size of the group, the
    bracket ends where the mean differs from z by e^-40.
    """
    free = odds.isfinite()
    reach = 40 + segments.sizes.double().log()
    low = -segments.amax(odds.where(free, float("-inf"))).nan_to_num(neginf=0.0) - reach
    high = segments.amax((-odds).where(free, float("-inf"))).nan_to_num(neginf=0.0) + reach
    tilt = torch.where((low < 0) & (high > 0), 0.0, (low + high) / 2)
    for _ in range(100):
        probs = (odds + segments.expand(tilt)).sigmoid()
        excess = segments.sum(probs) - z
        variance = segments.sum(probs * (1 - probs))
        near = excess.abs() <= 0.1 * variance.sqrt() + 1e-9
        if bool(near.all()):
            break
        low, high = torch.where(excess < 0, tilt, low), torch.where(excess > 0, tilt, high)
        step = tilt - excess / variance
        inside = (step > low) & (step < high)  # false for infinite steps where the slope is zero
        tilt = torch.where(near, tilt, torch.where(inside, step, (low + high) / 2))
    return tilt


def farthest_count(variance: Tensor) -> Tensor:
    """Return the distance from the mean beyond which counts are negligible, by Bernstein's inequality."""
    return NEGLIGIBLE / 3 + (NEGLIGIBLE**2 / 9 + 2 * NEGLIGIBLE * variance).sqrt()


def invert(probs: Tensor, segments: Segments, z: Tensor, around: Tensor | None, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the probability of z, (groups,), and the posterior of yes, (memberships,), for z near the mean.

    With weights of the counts from z - w to z + w, (groups, 2 w + 1), which are zero beyond the ``reach`` of each
    group, (groups,): the sum of weights times probabilities, and the posterior for these weights.
    """
    variance = segments.sum(probs * (1 - probs))
    # An odd number of frequencies excludes t = pi, where the characteristic function of a member with probability 1/2,
    # which is a divisor, is zero.
    farthest = farthest_count(variance) + reach
    period = 2 * (torch.minimum(farthest + 2, segments.sizes + 1) / 2).floor() + 1  # (groups,)
    # |phi(t)| <= exp(-variance (1 - cos t)) determines the highest frequency that is not negligible.
    top = torch.acos((1 - NEGLIGIBLE / variance).clamp_min(-1)) * period / (2 * math.pi)
    n_frequencies = torch.minimum(top.ceil(), (period - 1) / 2) + 1
    n_frequencies = n_frequencies.nan_to_num(nan=1.0)  # of a model that diverged; the result is NaN
    probability, posterior = torch.empty_like(z), torch.empty_like(probs)
    for which, rows, weights in blocks(segments, int(n_frequencies.max()), CHUNK):
        p = probs[rows] if weights is None else probs[rows] * weights  # padding is never yes: a factor of one
        n = int(n_frequencies[which].max())
        block_around = None if around is None else around[which]
        probability[which], block_posterior = _trapezoid(p, z[which], period[which], n, block_around)
        if weights is None:
            posterior[rows] = block_posterior
        else:
            real = weights > 0
            posterior[rows[real]] = block_posterior[real]
    return probability, posterior


def _trapezoid(
    probs: Tensor, z: Tensor, period: Tensor, n_frequencies: int, around: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute the probability of z, (groups,), and the posterior of yes, (groups, members)."""
    step = torch.arange(n_frequencies, dtype=z.dtype, device=z.device)[:, None]  # (frequencies, 1)
    t = 2 * math.pi * step / period  # (frequencies, groups)
    used = (2 * step < period).double() * torch.where(step == 0, 1.0, 2.0)  # by symmetry, without negative frequencies
    one_minus_cos, sin = 2 * (t / 2).sin().square(), t.sin()
    # The characteristic function of a member is f(t) = 1 + p (e^it - 1), that of a group the product. Tables have a row
    # per frequency, (frequencies, groups, members); the members of a large group are processed in parts.
    parts = probs.split(max(1, CHUNK // t.numel()), 1)
    turn = torch.complex(-one_minus_cos, sin)[:, :, None]
    whole = torch.polar(used, -t * z)
    if around is not None:
        # For weighted counts around z, the transform of the weights replaces e^-itz.
        turned = t[:, :, None] * (torch.arange(around.shape[1]).to(t) - around.shape[1] // 2)
        whole *= torch.complex((around * turned.cos()).sum(2), -(around * turned.sin()).sum(2))
    for p in parts:
        whole *= _product((turn * p.to(turn.dtype)).add_(1))
    probability = whole.real.sum(0) / period
    # Without the factor of a member that is yes, phi(t) e^it / f(t), the sum is the probability of z - 1 of the others.
    rest = whole * torch.polar(torch.ones_like(t), t)
    constant, slope = rest.real[:, :, None], (rest.imag * sin - rest.real * one_minus_cos)[:, :, None]

    def sum_without(p: Tensor) -> Tensor:
        squared = (one_minus_cos[:, :, None] * (-2 * p * (1 - p))).add_(1)  # the squared modulus of f
        return (slope * p).add_(constant).div_(squared).sum(0)

    others = join(map(sum_without, parts), probs.shape[1], 1)
    posterior = probs * others / (probability * period)[:, None]
    # Rounding errors may exceed the range, or make a certain member uncertain.
    return probability, posterior.clamp_(0, 1).masked_fill_(probs == 1, 1.0)


def _product(factors: Tensor) -> Tensor:
    """Compute the product over the last dimension by halves, several times as fast as ``prod``."""
    while (n := factors.shape[-1]) > 1:
        half, even = n // 2, n // 2 * 2
        product = factors[..., :half] * factors[..., half:even]
        if even < n:
            product[..., :1] *= factors[..., even:]
        factors = product
    return factors[..., 0]
