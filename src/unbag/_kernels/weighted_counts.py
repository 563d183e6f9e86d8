"""How many of a group are of one of two classes, where each count has a weight: the likelihood of what was published.

Weights are log-concave, as intervals, Laplace and normal noise and their products are, and so is the Poisson-binomial
distribution. Their product has one peak. Where the common tilt of log-odds is the slope of the log-weights at the
tilted mean, what is left of the weights peaks there too, at one: probabilities are then as well conditioned as in
:mod:`unbag._kernels.poisson_binomial`, and the sum over all counts is the same short sum over its characteristic
function, with the transform of the weights in place of a single count's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unbag._kernels.poisson_binomial import NEGLIGIBLE, farthest_count, find_tilt, invert
from unbag._kernels.segments import Segments

LogWeight = Callable[[Tensor], Tensor]
"""From counts, (groups, n), to the logarithms of their weights; ``-inf`` outside an interval."""


def infer_weighted_counts(
    log_no: Tensor, log_yes: Tensor, segments: Segments, bounds: tuple[Tensor, Tensor], log_weight: LogWeight
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log of the sum over counts of probability times weight, and the chance of yes of each membership.

    The third result is the tilt of each group, (groups,), the shift of log-odds for which the expected count is near
    the peak.

    Parameters
    ----------
    log_no, log_yes
        Log-probabilities of the two answers of each membership, (memberships,), in float64.
    segments
        The memberships of each group.
    bounds
        The least and the largest number of yeses that have a weight, (groups,).
    log_weight
        Log-weights of numbers of yeses, concave between the bounds.
    """
    odds = log_yes - log_no
    # Members with only one possible answer bound the count; what lies outside has probability zero.
    low = torch.maximum(bounds[0], segments.sum((log_no == float("-inf")).double()))
    high = torch.minimum(bounds[1], segments.sizes - segments.sum((log_yes == float("-inf")).double()))
    impossible = low > high
    low = torch.where(impossible, 0.0, low)
    high = torch.where(impossible, 0.0, high)
    peak, tilt = _find_peak(odds, segments, low, high, log_weight)
    chance = (odds + segments.expand(tilt)).sigmoid()
    farthest = farthest_count(segments.sum(chance * (1 - chance))).clamp_max(segments.max_size)
    around, reach = _weights_around(
        peak, tilt, (low.maximum(peak - farthest), high.minimum(peak + farthest)), log_weight
    )
    total, posterior = invert(chance, segments, peak, around, reach)
    scale = segments.sum(torch.logaddexp(log_no, log_yes + segments.expand(tilt))) - tilt * peak
    log_total = total.log() + scale + log_weight(peak[:, None])[:, 0]
    return log_total.masked_fill(impossible, float("-inf")), posterior, tilt


def _find_peak(
    odds: Tensor, segments: Segments, low: Tensor, high: Tensor, log_weight: LogWeight
) -> tuple[Tensor, Tensor]:
    """Find the tilt that is the slope of the log-weights at the mean it leads to, and the count at that mean.

    Between counts j and j + 1 the slope is the difference of their log-weights. It falls with j, and the mean that it
    leads to with it, so that one look tells on which side of j the peak is.
    """

    def slope(count: Tensor) -> Tensor:
        of_both = log_weight(torch.stack([count, count + 1], 1))
        return of_both[:, 1] - of_both[:, 0]

    first, last = low, high
    tilt, between = torch.zeros_like(low), torch.zeros_like(low, dtype=torch.bool)
    mean = torch.zeros_like(low)
    while bool((todo := (first < last) & ~between).any()):
        count = ((first + last) / 2).floor().minimum(last - 1).maximum(first)
        own = torch.where(todo, slope(count), tilt)
        mean = torch.where(todo, segments.sum((odds + segments.expand(own)).sigmoid()), mean)
        more, less = todo & (mean > count + 1), todo & (mean < count)
        first, last = torch.where(more, count + 1, first), torch.where(less, count, last)
        reached = todo & ~more & ~less
        tilt, between, first = torch.where(reached, own, tilt), between | reached, torch.where(reached, count, first)
    at_count = find_tilt(odds, segments, torch.where(between, mean, first))
    # At the bounds nothing limits the slope to one side; beside the limits the weights would peak elsewhere.
    least = torch.where(first < high, slope(first.minimum(high - 1)), float("-inf"))
    most = torch.where(first > low, slope((first - 1).maximum(low)), float("inf"))
    return first, torch.where(between, tilt, at_count.maximum(least).minimum(most))


def _weights_around(
    peak: Tensor, tilt: Tensor, bounds: tuple[Tensor, Tensor], log_weight: LogWeight
) -> tuple[Tensor, Tensor]:
    """Return the weights of counts around the peak with the tilt taken out, (groups, 2 w + 1), and how far they reach.

    Bounds are those of counts that are possible and not negligible.
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
