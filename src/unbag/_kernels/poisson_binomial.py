"""How many of a group are of one of two classes, exactly, for groups of any size.

The count of independent members with unequal chances has the Poisson-binomial distribution. Its probability at z is a
trapezoidal sum over the characteristic function. Two things make that sum short and exact. First, every member's
log-odds are shifted by a common tilt until the expected count is z: the probability of z is then of the order of one
over the standard deviation, however unlikely z was, and the tilt is taken out again in log space. Second, a sum over N
frequencies adds up the probabilities of z, z + N, z - N, ...; around a mean of z all but the first are negligible as
soon as N exceeds about nine standard deviations, and of these frequencies only the low ones carry weight. Some 15 to
35 remain for any size, so the cost grows with the number of members alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unbag._kernels.blocks import blocks
from unbag._kernels.segments import Segments
from unbag._utils.parts import join

# Probabilities below e^-44 of the whole are lost in float64 in any case.
NEGLIGIBLE = 44.0
# Complex numbers that one table of frequencies and members may hold, so that it stays in a processor's cache.
CHUNK = 2**17


def infer_two_counts(log_no: Tensor, log_yes: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-weight of exactly z yeses in each group, and the chance of yes of each membership; in float64.

    Parameters
    ----------
    log_no, log_yes
        Log-weights of the two answers of each membership, (memberships,); they need not add up to one.
    segments
        The memberships of each group.
    z
        Number of yeses, (groups,), from 0 to the size of the group.
    """
    log_no, log_yes, z = log_no.double(), log_yes.double(), z.double()
    neither = (log_no == float("-inf")) & (log_yes == float("-inf"))
    odds = (log_yes - log_no).masked_fill(neither, 0.0)
    tilt = find_tilt(odds, segments, z)
    tilted = odds + segments.expand(tilt)
    chance = tilted.sigmoid()
    probability, posterior = invert(chance, segments, z)
    weight = torch.logaddexp(log_no, log_yes + segments.expand(tilt))
    log_total = probability.log() + segments.sum(weight) - tilt * z
    # Members with only one possible answer bound the count; what lies outside has probability zero.
    only_yes = segments.sum((log_no == float("-inf")).double())
    only_no = segments.sum((log_yes == float("-inf")).double())
    impossible = (z < only_yes) | (z > segments.sizes - only_no) | (segments.sum(neither.double()) > 0)
    return log_total.masked_fill(impossible, float("-inf")), posterior


def find_tilt(odds: Tensor, segments: Segments, z: Tensor) -> Tensor:
    """Find the shift of log-odds for which the expected number of yeses of each group is z, or nearly so.

    Any shift gives an exact result in the end; one that brings the mean within a tenth of a standard deviation of z
    gives a well-conditioned sum. Newton's method, kept inside a shrinking bracket. Where z is 0 or the size of the
    group, the bracket ends where the mean is e^-40 away from it.
    """
    free = odds.isfinite()
    reach = 40 + segments.sizes.double().log()
    low = -_per_group(odds.where(free, float("-inf")), segments, "amax").nan_to_num(neginf=0.0) - reach
    high = -_per_group(odds.where(free, float("inf")), segments, "amin").nan_to_num(posinf=0.0) + reach
    tilt = torch.where((low < 0) & (high > 0), 0.0, (low + high) / 2)
    for _ in range(100):
        chance = (odds + segments.expand(tilt)).sigmoid()
        excess = segments.sum(chance) - z
        variance = segments.sum(chance * (1 - chance))
        near = excess.abs() <= 0.1 * variance.sqrt() + 1e-9
        if bool(near.all()):
            break
        low, high = torch.where(excess < 0, tilt, low), torch.where(excess > 0, tilt, high)
        step = tilt - excess / variance
        inside = (step > low) & (step < high)  # false for the infinite steps of a flat stretch
        tilt = torch.where(near, tilt, torch.where(inside, step, (low + high) / 2))
    return tilt


def _per_group(values: Tensor, segments: Segments, reduce: str) -> Tensor:
    start = values.new_full((len(segments),), float("-inf") if reduce == "amax" else float("inf"))
    return start.scatter_reduce_(0, segments.index, values, reduce)


def farthest_count(variance: Tensor) -> Tensor:
    """Return the distance from the mean beyond which counts are negligible, by Bernstein's inequality."""
    return NEGLIGIBLE / 3 + (NEGLIGIBLE**2 / 9 + 2 * NEGLIGIBLE * variance).sqrt()


def invert(
    chance: Tensor, segments: Segments, z: Tensor, around: Tensor | None = None, reach: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the probability of z, (groups,), and the chance of yes given z, (memberships,), for z near the mean.

    With weights of the counts around z, (groups, 2 w + 1) from z - w to z + w, which are zero beyond the ``reach`` of
    each group, (groups,): the sum of weights times probabilities, and the chance of yes given that sum.
    """
    variance = segments.sum(chance * (1 - chance))
    # An odd number of frequencies never meets t = pi, where a member with even chances has no characteristic function
    # to divide by.
    farthest = farthest_count(variance) + reach
    period = 2 * (torch.minimum(farthest + 2, segments.sizes + 1) / 2).floor() + 1  # (groups,)
    # |phi(t)| <= exp(-variance (1 - cos t)) bounds what lies beyond the highest frequency that counts.
    top = torch.acos((1 - NEGLIGIBLE / variance).clamp_min(-1)) * period / (2 * math.pi)
    n_frequencies = torch.minimum(top.ceil(), (period - 1) / 2) + 1
    n_frequencies = n_frequencies.nan_to_num(nan=1.0)  # of a model that diverged; NaN comes out as it went in
    probability, posterior = torch.empty_like(z), torch.empty_like(chance)
    for which, rows, weights in blocks(segments, int(n_frequencies.max()), CHUNK):
        p = chance[rows] if weights is None else chance[rows] * weights  # padding never says yes: a factor of one
        n = int(n_frequencies[which].max())
        own = None if around is None else around[which]
        probability[which], of_members = _trapezoid(p, z[which], period[which], n, own)
        if weights is None:
            posterior[rows] = of_members
        else:
            real = weights > 0
            posterior[rows[real]] = of_members[real]
    return probability, posterior


def _trapezoid(
    chance: Tensor, z: Tensor, period: Tensor, n_frequencies: int, around: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the probability of z, (groups,), and the chance of yes given z, (groups, members)."""
    step = torch.arange(n_frequencies, dtype=z.dtype, device=z.device)[:, None]  # (frequencies, 1)
    t = 2 * math.pi * step / period  # (frequencies, groups)
    used = (2 * step < period).double() * torch.where(step == 0, 1.0, 2.0)  # the negative half mirrors the positive
    one_minus_cos, sin = 2 * (t / 2).sin().square(), t.sin()
    # A member's characteristic function is f(t) = 1 + p (e^it - 1); those of a group multiply. Tables have one row per
    # frequency, (frequencies, groups, members); the members of a large group are taken some after others.
    parts = chance.split(max(1, CHUNK // t.numel()), 1)
    turn = torch.complex(-one_minus_cos, sin)[:, :, None]
    whole = torch.polar(used, -t * z)
    if around is not None:
        # Counts around z with weights are one count with the transform of the weights for e^-itz.
        turned = t[:, :, None] * (torch.arange(around.shape[1]).to(t) - around.shape[1] // 2)
        whole *= torch.complex((around * turned.cos()).sum(2), -(around * turned.sin()).sum(2))
    for p in parts:
        whole *= _product((turn * p.to(turn.dtype)).add_(1))
    probability = whole.real.sum(0) / period
    # With one yes taken out of the product, phi(t) e^it / f(t), the same sum is the chance of the others making z - 1.
    rest = whole * torch.polar(torch.ones_like(t), t)
    constant, slope = rest.real[:, :, None], (rest.imag * sin - rest.real * one_minus_cos)[:, :, None]

    def of_others(p: Tensor) -> Tensor:
        squared = (one_minus_cos[:, :, None] * (-2 * p * (1 - p))).add_(1)  # the squared modulus of f
        return (slope * p).add_(constant).div_(squared).sum(0)

    others = join(map(of_others, parts), chance.shape[1], 1)
    posterior = chance * others / (probability * period)[:, None]
    # Rounding alone can leave the range, or a member who is certain in doubt.
    return probability, posterior.clamp_(0, 1).masked_fill_(chance == 1, 1.0)


def _product(factors: Tensor) -> Tensor:
    """Multiply over the last dimension, half by half: several times as fast as ``prod``."""
    while (n := factors.shape[-1]) > 1:
        half, even = n // 2, n // 2 * 2
        product = factors[..., :half] * factors[..., half:even]
        if even < n:
            product[..., :1] *= factors[..., even:]
        factors = product
    return factors[..., 0]
