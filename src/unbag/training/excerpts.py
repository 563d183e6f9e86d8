"""Groups without the other rows of a table: groups of some rows, and some groups of a table on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, gather_rows, row_shape

EXCERPT_NUMBERS = 10_000_000  # values at most, of all columns and sets together


def excerpt(
    X: Rows, sets: Sequence[Observations], max_numbers: int = EXCERPT_NUMBERS
) -> tuple[Tensor, list[Observations]]:
    """Return a table and sets of its groups: all of them in memory, or those of randomly chosen groups on disk."""
    if isinstance(X, Tensor):
        return X, list(sets)
    chosen = [some_groups(s.groups, max_numbers // math.prod(row_shape(X)) // len(sets)) for s in sets]
    return take_groups(X, sets, chosen)[1:]


def take_groups(
    X: Rows, sets: Sequence[Observations], chosen: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[Observations]]:
    """Return the sorted row numbers of some groups of each set, these rows, and the sets as groups of them."""
    rows, sets = renumber_rows([s.take(which) for s, which in zip(sets, chosen, strict=True)])
    return rows, gather_rows(X, rows), sets


def renumber_rows(sets: Sequence[Observations]) -> tuple[Tensor, list[Observations]]:
    """Return the sorted numbers of all rows in groups, and the sets as groups of these rows."""
    rows, members = torch.cat([s.groups.members for s in sets]).unique(return_inverse=True)
    members_of_sets = members.split([len(s.groups.members) for s in sets])
    groups = [replace(s.groups, members=m, n_rows=len(rows)) for s, m in zip(sets, members_of_sets, strict=True)]
    return rows, [s.with_groups(g) for s, g in zip(sets, groups, strict=True)]


def some_groups(groups: Groups, most_rows: int, first: Tensor | None = None) -> Tensor:
    """Return sorted numbers of random groups, those of ``first`` before others, with at most ``most_rows`` members.

    At least one group is returned.
    """
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0)).to(groups.device)
    if first is not None:
        order = torch.cat([first, order[~torch.isin(order, first)]])
    fits = groups.sizes[order].cumsum(0) <= most_rows
    return order[: max(1, int(fits.sum()))].sort().values
