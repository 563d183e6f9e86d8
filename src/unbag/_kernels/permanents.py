"""Counts of small groups of equal size, as permanents of matrices of members and places.

Each counted label is a place. The sum over all assignments of members to places is the permanent of the matrix of their
weights. A state is the set of occupied places. Reading the members in reverse order visits the same states: one
recursion computes forward and backward weights.
"""

from functools import lru_cache
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor


class SubsetTables(NamedTuple):
    """Tables for m places. Sets of t places are level t, which lists them for the forward, then the backward pass."""

    first: Tensor  # rows member * m + place of the weights, for the sets of level 1
    last: list[Tensor]  # by level from 2, for each set and place in it: the row of the member on the place
    before: list[Tensor]  # and the set without that place, in the level before
    earlier: Tensor  # for each member t, place and set of t other places: that set, forward; padded with no set
    later: Tensor  # and the set of the remaining places, backward


@lru_cache(maxsize=16)
def subset_tables(m: int, device: torch.device) -> SubsetTables:
    """List the sets of places. In the concatenation of all levels, row 0 is the empty set, and row 1 is no set."""

    def table(rows: list[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=device)

    levels = [list(combinations(range(m), t)) for t in range(m)]
    in_level = [{taken: row for row, taken in enumerate(level)} for level in levels]
    last, before = [], []
    for t in range(2, m):
        steps = [(taken, place) for taken in levels[t] for place in taken]
        kept = [in_level[t - 1][tuple(other for other in taken if other != place)] for taken, place in steps]
        places = [place for _, place in steps]
        last.append(table([(t - 1) * m + place for place in places] + [(m - t) * m + place for place in places]))
        before.append(table(kept + [len(levels[t - 1]) + row for row in kept]))
    starts = [0] + [2 + 2 * sum(len(level) for level in levels[1:t]) for t in range(1, m)]
    most_others = comb(m - 1, (m - 1) // 2)
    earlier, later = [], []
    for t, place in product(range(m), range(m)):
        others = [taken for taken in levels[t] if place not in taken]
        left = [tuple(p for p in range(m) if p != place and p not in taken) for taken in others]
        behind = m - 1 - t  # the number of places of the members after t
        backwards = starts[behind] + (len(levels[behind]) if behind else 0)
        none = [1] * (most_others - len(others))
        earlier += [starts[t] + in_level[t][taken] for taken in others] + none
        later += [backwards + in_level[behind][taken] for taken in left] + none
    first = [*range(m), *range((m - 1) * m, m * m)] if m > 1 else []
    return SubsetTables(table(first), last, before, table(earlier), table(later))


def infer_permanents(log_probs: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over all assignments of the members of each group to places, in the precision of the weights.

    All groups have the same size. The first result is the sum, not its logarithm, in which places of the same label are
    distinct; below ``safe_total`` of its type it is not reliable.
    """
    (n, k), m = z.shape, len(log_probs) // len(z)
    tables = subset_tables(m, z.device)
    # A place is an entry of z, group * k + class. The cell of its weight for each member, (member, place, group), is an
    # index into the table of classes and memberships, or of memberships and classes, depending on the memory layout.
    by_row = log_probs.is_contiguous()
    table, step = (log_probs, 1) if by_row else (log_probs.t(), n * m)
    place = torch.repeat_interleave(z.view(-1), output_size=n * m).view(n, m)
    cell = torch.add(_first_cells(n, m, k, step, z.device), place.t(), alpha=step).reshape(-1)
    weights = table.reshape(-1).index_select(0, cell).exp_().view(m * m, n)
    level = weights.index_select(0, tables.first)
    levels = [weights.new_ones(1, n), weights.new_zeros(1, n), level]
    for t, (last, before) in enumerate(zip(tables.last, tables.before, strict=True), 2):
        level = level.index_select(0, before).mul_(weights.index_select(0, last)).view(-1, t, n).sum(1)
        levels.append(level)
    sets = torch.cat(levels)
    others = sets.index_select(0, tables.earlier).mul_(sets.index_select(0, tables.later))
    assigned = others.view(m * m, -1, n).sum(1).mul_(weights)  # (member * place, groups)
    total = assigned[:m].sum(0)
    posterior = weights.new_zeros(k * n * m).scatter_add_(0, cell, assigned.div_(total).view(-1)).view(table.shape)
    return total, posterior if by_row else posterior.t()


@lru_cache(maxsize=16)
def _first_cells(n: int, m: int, k: int, step: int, device: torch.device) -> Tensor:
    """Return the cell of class 0 of each membership, minus the offset of its group in z, (member, 1, group).

    ``step`` is the distance between the classes of a membership.
    """
    group, row = torch.arange(n, device=device), k if step == 1 else 1
    return (torch.arange(m, device=device)[:, None] * row + group * (m * row - k * step))[:, None]
