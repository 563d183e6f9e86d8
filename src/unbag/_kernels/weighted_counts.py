"""Counts of two classes with a weight for each count: the likelihood of a published count.

Weights are log-concave, as intervals, Laplace and normal noise and their products are, and so is the Poisson-binomial
distribution. Their product has one peak. If the common tilt of log-odds is the slope of the log-weights at the tilted
mean, the tilted weights also have their peak there, with the value one. Probabilities are then as well conditioned as
in :mod:`unbag._kernels.poisson_binomial`, and the sum over all counts is the same short sum over the characteristic
function, with the transform of the weights instead of that of a single count.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unbag._kernels.poisson_binomial import NEGLIGIBLE, farthest_count, find_tilt, invert
from unbag._kernels.segments import Segments

LogWeight = Callable[[Tensor], Tensor]
"""From counts, (groups, n), to the logarithms of their weights, ``-inf`` outside of an interval."""


def infer_weighted_counts(
    log_no: Tensor, log_yes: Tensor, segments: Segments, bounds: tuple[Tensor, Tensor], log_weight: LogWeight
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the log of the sum over counts of probability times weight, and the posterior of yes.

    The third result is the tilt of each group, (groups,), the shift of log-odds that moves the expected count near the
    peak. Log-probabilities of the two labels, (memberships,), are in float64. ``bounds`` are the smallest and the
    largest number of yeses with a weight, (groups,), between which the log-weights are concave.
    """
    odds = log_yes - log_no
    # Members with a single possible label bound the count; other counts have probability zero.
    low = torch.maximum(bounds[0], segments.sum((log_no == float("-inf")).double()))
    high = torch.minimum(bounds[1], segments.sizes - segments.sum((log_yes == float("-inf")).double()))
    impossible = low > high
    low, high = (torch.where(impossible, 0.0, bound) for bound in (low, high))
    peak, tilt = _find_peak(odds, segments, low, high, log_weight)
    probs = (odds + segments.expand(tilt)).sigmoid()
    farthest = farthest_count(segments.sum(probs * (1 - probs))).clamp_max(segments.max_size)
    around, reach = _weights_around(
        peak, tilt, (low.maximum(peak - farthest), high.minimum(peak + farthest)), log_weight
    )
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
