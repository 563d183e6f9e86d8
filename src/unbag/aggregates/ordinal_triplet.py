"""Comparison of three instances with ordered classes."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from unbag._kernels.logspace import cumulate, normalise
from unbag._kernels.segments import Segments
from unbag.aggregates.binary import BinaryAggregate
from unbag.aggregates.traits import Wording
from unbag.aggregates.triplet import TripletComparison


class OrdinalTriplet(BinaryAggregate):
    """Triplets with ordered classes and the observation 1 if ``|y_1 - y_2| < |y_1 - y_3|``.

    Examples
    --------
    >>> from unbag import Groups
    >>> triplets = Groups.from_tuples([[0, 1, 2], [2, 0, 1]])
    >>> OrdinalTriplet().observe([0, 1, 4], triplets, n_classes=5)
    tensor([1, 0])
    """

    size = 3
    wording = Wording(
        *("Ordered triplets", "whether its first row is closer to the second than to the third"),
        *("triplet", "triplets", "yes", "no"),
    )
    column = TripletComparison.column

    def _compare(self, *labels: Tensor) -> Tensor:
        first, second, third = labels
        return (first - second).abs() < (first - third).abs()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        k, n = log_probs.shape[1], len(segments)
        # With the groups in the last dimension, selecting classes copies whole rows.
        first, second, third = log_probs.view(n, 3, k).permute(1, 2, 0).contiguous()  # each (k, groups)
        # For label v of the first and j of the second member, the third is farther from v than r = |v - j| (z = 1) or
        # not (z = 0). For label j of the third member, the second is nearer to v than r (z = 1) or not.
        within = _within(torch.where(z, second, third), z)  # (v * j, groups)
        beyond = _beyond(torch.where(z, third, second), z)
        with_second = torch.where(z, beyond, within)
        with_third = torch.where(z, within, beyond)
        with_second.view(k, k, n).add_(first[:, None]).add_(second)
        with_third.view(k, k, n).add_(first[:, None]).add_(third)
        log_likelihood, first_second = normalise(with_second, dim=0)
        _, first_third = normalise(with_third, dim=0)
        first_second, first_third = first_second.view(k, k, n), first_third.view(k, k, n)
        posterior = torch.stack([first_second.sum(1), first_second.sum(0), first_third.sum(0)])  # (3, k, groups)
        return log_likelihood, posterior.permute(2, 0, 1).reshape(log_probs.shape)


def _within(log_probs: Tensor, nearer: Tensor) -> Tensor:
    """Log-probability of a distance from v of at most r, or less where ``nearer``: (k, groups) to (v * j, groups)."""
    k = len(log_probs)
    at = _places(k, log_probs.device)
    padded = _with_none(log_probs)
    rings = torch.logaddexp(padded.index_select(0, at.ring_below), padded.index_select(0, at.ring_above))
    none = torch.full_like(log_probs, float("-inf"))
    # Radius -1, 0, .., k - 1 around each v.
    discs = torch.cat([none, *accumulate([log_probs, *rings.split(k)], torch.logaddexp)])
    return torch.where(nearer, discs.index_select(0, at.inner_disc), discs.index_select(0, at.disc))


def _beyond(log_probs: Tensor, farther: Tensor) -> Tensor:
    """Log-probability of a distance from v of at least r, or more where ``farther``: (k, groups) to (v * j, groups)."""
    k = len(log_probs)
    at = _places(k, log_probs.device)
    up_to, from_on = (_with_none(part.t()) for part in cumulate(log_probs.t()))  # each (k + 1, groups)
    below = torch.where(farther, up_to.index_select(0, at.below), up_to.index_select(0, at.not_above))
    above = torch.where(farther, from_on.index_select(0, at.above), from_on.index_select(0, at.not_below))
    beyond = torch.logaddexp(below, above)
    # For r = 0 the two sums overlap in v, and every label has at least this distance.
    beyond[:: k + 1].masked_fill_(~farther, 0)
    return beyond


class _Places(NamedTuple):
    """Flat indices of rows to select for each label v and j; row k of cumulated labels is "no label"."""

    below: Tensor  # v - r - 1, with r = |v - j|
    above: Tensor  # v + r + 1
    not_above: Tensor  # v - r
    not_below: Tensor  # v + r
    disc: Tensor  # labels within r of v
    inner_disc: Tensor  # labels within r - 1 of v
    ring_below: Tensor  # v - r for r = 1, .., k - 1 and each v
    ring_above: Tensor  # v + r


@lru_cache(maxsize=64)
def _places(k: int, device: torch.device) -> _Places:
    v, j = torch.meshgrid(torch.arange(k, device=device), torch.arange(k, device=device), indexing="ij")
    r = (v - j).abs()
    return _Places(
        below=_inside(v - r - 1, k),
        above=_inside(v + r + 1, k),
        not_above=_inside(v - r, k),
        not_below=_inside(v + r, k),
        disc=((r + 1) * k + v).flatten(),
        inner_disc=(r * k + v).flatten(),
        ring_below=_inside(j - v, k)[k:],
        ring_above=_inside(j + v, k)[k:],
    )


def _inside(labels: Tensor, k: int) -> Tensor:
    return labels.where((labels >= 0) & (labels < k), k).flatten()


def _with_none(log_probs: Tensor) -> Tensor:
    return torch.cat([log_probs, log_probs.new_full((1, log_probs.shape[1]), float("-inf"))])
