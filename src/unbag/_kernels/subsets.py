"""Small groups of one size whose counts have weights: a sum over all ways to cut the members into classes.

A class takes a set of members, with the weight of the set's size and the product of their probabilities. Class after
class, the sum over disjoint sets is a subset convolution, over the pairs of a set and a part of it, 3^m for m members.
The classes before one and those after it are summed side by side.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# Numbers that one table of pairs may hold, so that it stays in a processor's cache.
CHUNK = 2**18


class Pairs(NamedTuple):
    """Sets of m members as bits of a number, and all pairs of a set and a part of it."""

    whole: Tensor  # (3^m,)
    part: Tensor  # (3^m,)
    rest: Tensor  # (3^m,), the set without the part
    size: Tensor  # (2^m,)
    holds: Tensor  # (m, 2^m), 1 where the set holds the member


@lru_cache(maxsize=16)
def pairs(m: int, device: torch.device) -> Pairs:
    """Lay out the pairs of m members."""
    whole, part = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for bit in (1 << member for member in range(m)):  # in neither, in the set alone, in both
        whole, part = torch.cat([whole, whole + bit, whole + bit]), torch.cat([part, part, part + bit])
    order = whole.argsort()
    whole, part = whole[order], part[order]
    holds = (torch.arange(2**m) >> torch.arange(m)[:, None]) & 1
    return Pairs(*(one.to(device) for one in (whole, part, whole - part, holds.sum(0), holds)))


def infer_subsets(log_probs: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sum weights times probabilities over all label vectors, in the precision of the probabilities.

    Parameters
    ----------
    log_probs
        (memberships, k), group after group, all of one size m.
    log_weights
        Of the counts 0 to m of each class, (groups, k, m + 1).

    Returns
    -------
    total
        (groups,), the sum itself; below ``safe_total`` of its type it may have lost what matters.
    posterior
        (memberships, k).
    """
    n, k, m = len(log_weights), log_weights.shape[1], log_weights.shape[2] - 1
    most = max(1, CHUNK // (3**m * 2))
    if n > most:
        parts = [infer_subsets(*both) for both in zip(log_probs.split(most * m), log_weights.split(most), strict=True)]
        return torch.cat([total for total, _ in parts]), torch.cat([posterior for _, posterior in parts])
    sets = pairs(m, log_probs.device)
    members = log_probs.view(n, m, k).permute(1, 2, 0).contiguous().exp()  # (m, k, groups)
    taken = members.new_ones(1, k, n)
    for member in members:
        taken = torch.cat([taken, taken * member])
    weights = log_weights.to(log_probs.dtype).permute(2, 1, 0).contiguous().exp()  # (counts, k, groups)
    taken = taken.mul_(weights.index_select(0, sets.size)).transpose(0, 1).contiguous()  # (k, sets, groups)
    room = members.new_empty(2, len(sets.whole), 2 * n)  # taken once: new memory costs more than what is done with it
    sums = torch.cat([taken[0], taken[-1]], 1)
    ends = [sums]  # of the first j + 1 classes, and beside them of the last ones, (sets, 2 groups)
    for j in range(1, k - 1):
        sums = _convolve(sums, torch.cat([taken[j], taken[k - 1 - j]], 1), sets, room)
        ends.append(sums)
    others = [sums.roll(n, 1)]  # what the other classes make of each set, for classes j and k - 1 - j
    for j in range(1, (k + 1) // 2):
        here, there = ends[j - 1], ends[k - 2 - j]
        before, after = torch.cat([here[:, :n], there[:, :n]], 1), torch.cat([there[:, n:], here[:, n:]], 1)
        others.append(_convolve(before, after, sets, room))
    held = members.new_empty(k, m, n)
    holds = sets.holds.to(held.dtype)
    for j, of_two in enumerate(others):
        for one, rest in zip((j, k - 1 - j), of_two.flip(0).split(n, 1), strict=True):  # a set's complement
            torch.mm(holds, taken[one] * rest, out=held[one])
    total = held[:, 0].sum(0)
    return total, (held / total).permute(2, 1, 0).reshape(n * m, k)


def _convolve(one: Tensor, other: Tensor, sets: Pairs, room: Tensor) -> Tensor:
    """Sum products over all ways to cut each set in two: (sets, columns)."""
    products = torch.index_select(one, 0, sets.part, out=room[0])
    products *= torch.index_select(other, 0, sets.rest, out=room[1])
    return torch.zeros_like(one).index_add_(0, sets.whole, products)
