"""Small groups of one size, the fast way: as many places as members, each place one of the labels that were counted.

The sum over all ways to seat the members is the permanent of the matrix of their weights. A state is the set of places
taken so far. Reading the members backwards visits the same states, so that one recursion, on a batch of twice the
groups, gives both what leads to a state and what follows it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor


class Seatings(NamedTuple):
    """Tables for a number of places; sets of t places are level t."""

    last: list[Tensor]  # by level, from 2 on, for each set and each place in it: row t * m + place of the weights
    before: list[Tensor]  # and the set without that place, in the level before
    earlier: Tensor  # for each member t, place and set of t others: that set, among all levels
    later: Tensor  # and the set of what both leave over
    n_others: list[int]  # how many sets of others there are, by t


@lru_cache(maxsize=16)
def seatings(m: int, device: torch.device) -> Seatings:
    """Lay out the sets of places."""
    levels = [list(combinations(range(m), t)) for t in range(m)]
    number = {taken: place for level in levels for place, taken in enumerate(level)}
    start = [sum(len(level) for level in levels[:t]) for t in range(m)]
    last, before, earlier, later = [], [], [], []
    for t in range(2, m):
        last.append([(t - 1) * m + place for taken in levels[t] for place in taken])
        before.append([number[tuple(p for p in taken if p != place)] for taken in levels[t] for place in taken])
    for t in range(m):
        for place in range(m):
            for taken in combinations([p for p in range(m) if p != place], t):
                left = tuple(p for p in range(m) if p != place and p not in taken)
                earlier.append(start[t] + number[taken])
                later.append(start[len(left)] + number[left])

    def table(rows: list[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=device)

    n_others = [comb(m - 1, t) for t in range(m)]
    by_level = ([table(rows) for rows in last], [table(rows) for rows in before])
    return Seatings(*by_level, table(earlier), table(later), n_others)


def infer_places(log_probs: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over all ways to seat the members of each group, in the precision of the weights.

    Parameters
    ----------
    log_probs
        (memberships, k), group after group.
    places
        The label of each place, (groups, members of a group).

    Returns
    -------
    total
        (groups,), the sum itself; below ``safe_total`` of its type it may have lost what matters.
    posterior
        (memberships, k).
    """
    n, m = places.shape
    member = torch.arange(n * m, device=places.device).view(n, m).t()[:, None]  # (member, 1, group)
    cell = (
        places.t().mul(n * m).add(member).flatten()
    )  # in the table of classes and memberships, (member, place, group)
    weights = log_probs.t().reshape(-1).index_select(0, cell).exp_().view(m, m, n)
    both_ways = torch.cat([weights, weights.flip(0)], 2).view(m * m, 2 * n)
    tables = seatings(m, places.device)
    levels = [weights.new_ones(1, 2 * n), both_ways[: m if m > 1 else 0]]
    for t, (last, before) in enumerate(zip(tables.last, tables.before, strict=True), 2):
        arriving = levels[-1].index_select(0, before).mul_(both_ways.index_select(0, last))
        levels.append(arriving.view(-1, t, 2 * n).sum(1))
    forwards, backwards = torch.cat(levels).split(n, 1)  # each (sets of fewer than m places, groups)
    others = forwards.index_select(0, tables.earlier).mul_(backwards.index_select(0, tables.later))
    by_member = others.split([m * rows for rows in tables.n_others])
    seated = torch.stack([part.view(m, -1, n).sum(1) for part in by_member]).mul_(weights)  # (member, place, group)
    total = seated[0].sum(0)
    posterior = seated.new_zeros(log_probs.numel()).scatter_add_(0, cell, seated.div_(total).flatten())
    return total, posterior.view(-1, n * m).t()
