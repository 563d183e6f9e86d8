"""Weighted counts of small groups of equal size: a sum over all partitions of the members into classes.

Each class gets a set of members, with the weight of its size and the product of their probabilities. Class by class,
the sum over disjoint sets is a subset convolution, over 3^m pairs of a set and a subset for m members. The sums over
the classes before and after a class are computed together.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# Maximum number of values of a table of pairs, which then fits in the cache of a CPU.
CHUNK = 2**18


class Pairs(NamedTuple):
    """Sets of m members as bits of a number, and all pairs of a set and a subset."""

    whole: Tensor  # (3^m,)
    part: Tensor  # (3^m,), the subset
    rest: Tensor  # (3^m,), the set without the subset
    size: Tensor  # (2^m,)
    contains: Tensor  # (m, 2^m), 1 where the set contains the member


@lru_cache(maxsize=16)
def pairs(m: int, device: torch.device) -> Pairs:
    """List the pairs of m members."""
    whole, part = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for bit in (1 << member for member in range(m)):  # in neither, in the set only, in both
        whole, part = torch.cat([whole, whole + bit, whole + bit]), torch.cat([part, part, part + bit])
    order = whole.argsort()
    whole, part = whole[order], part[order]
    contains = (torch.arange(2**m) >> torch.arange(m)[:, None]) & 1
    return Pairs(*(table.to(device) for table in (whole, part, whole - part, contains.sum(0), contains)))


def infer_subsets(log_probs: Tensor, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sum weights times probabilities over all label vectors, in the precision of the probabilities.

    All groups have the same size m, and the log-weights are those of the counts 0 to m. The first result is the sum,
    not its logarithm; below ``safe_total`` of its type it is not reliable.
    """
    n, k, m = len(log_weights), log_weights.shape[1], log_weights.shape[2] - 1
    chunk = max(1, CHUNK // (3**m * 2))
    if n > chunk:
        parts = zip(log_probs.split(chunk * m), log_weights.split(chunk), strict=True)
        totals, posteriors = zip(*(infer_subsets(*part) for part in parts), strict=True)
        return torch.cat(totals), torch.cat(posteriors)
    sets = pairs(m, log_probs.device)
    members = log_probs.view(n, m, k).permute(1, 2, 0).contiguous().exp()  # (m, k, groups)
    taken = members.new_ones(1, k, n)
    for member in members:
        taken = torch.cat([taken, taken * member])
    weights = log_weights.to(log_probs.dtype).permute(2, 1, 0).contiguous().exp()  # (counts, k, groups)
    taken = taken.mul_(weights.index_select(0, sets.size)).transpose(0, 1).contiguous()  # (k, sets, groups)
    buffer = members.new_empty(2, len(sets.whole), 2 * n)  # reused, as allocation takes longer than the computation
    sums = torch.cat([taken[0], taken[-1]], 1)
    ends = [sums]  # of the first j + 1 classes and of the last j + 1 classes, (sets, 2 groups)
    for j in range(1, k - 1):
        sums = _convolve(sums, torch.cat([taken[j], taken[k - 1 - j]], 1), sets, buffer)
        ends.append(sums)
    others = [sums.roll(n, 1)]  # sums over all other classes than j, and than k - 1 - j
    for j in range(1, (k + 1) // 2):
        short, long = ends[j - 1], ends[k - 2 - j]
        before, after = torch.cat([short[:, :n], long[:, :n]], 1), torch.cat([long[:, n:], short[:, n:]], 1)
        others.append(_convolve(before, after, sets, buffer))
    joint = members.new_empty(k, m, n)
    contains = sets.contains.to(joint.dtype)
    for j, sums in enumerate(others):
        for label, rest in zip((j, k - 1 - j), sums.flip(0).split(n, 1), strict=True):  # flip: the complement of a set
            torch.mm(contains, taken[label] * rest, out=joint[label])
    total = joint[:, 0].sum(0)
    return total, (joint / total).permute(2, 1, 0).reshape(n * m, k)


def _convolve(first: Tensor, second: Tensor, sets: Pairs, buffer: Tensor) -> Tensor:
    """Sum products over all partitions of each set into two: (sets, columns)."""
    products = torch.index_select(first, 0, sets.part, out=buffer[0])
    products *= torch.index_select(second, 0, sets.rest, out=buffer[1])
    return torch.zeros_like(first).index_add_(0, sets.whole, products)
