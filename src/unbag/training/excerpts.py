"""Some rows of a table that is on disk, in whole groups, for what looks at all columns at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, gather_rows, row_shape

EXCERPT_NUMBERS = 10_000_000
"""Numbers at most, of all columns and sets together."""


def excerpt(X: Rows, sets: Sequence[Observations]) -> tuple[Tensor, list[Observations]]:
    """Return a table and sets of its groups: all rows, if they are in memory, or else those of some groups.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> seen = Observations(LabelProportions(), Groups.from_sizes([2, 1]), [[1, 1], [0, 1]], 2)
    >>> excerpt(torch.ones(3, 1), [seen])[0].shape
    torch.Size([3, 1])
    """
    if isinstance(X, Tensor):
        return X, list(sets)
    chosen = [some_groups(one.groups, EXCERPT_NUMBERS // math.prod(row_shape(X)) // len(sets)) for one in sets]
    return take_groups(X, sets, chosen)[1:]


def take_groups(
    X: Rows, sets: Sequence[Observations], chosen: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[Observations]]:
    """Return the numbers of the rows of some groups of each set, sorted, these rows, and the sets as groups of them."""
    sets = [one.take(which) for one, which in zip(sets, chosen, strict=True)]
    rows, members = torch.cat([one.groups.members for one in sets]).unique(return_inverse=True)
    local = members.split([len(one.groups.members) for one in sets])
    taken = [
        one.with_groups(replace(one.groups, members=own, n_rows=len(rows)))
        for one, own in zip(sets, local, strict=True)
    ]
    return rows, gather_rows(X, rows), taken


def some_groups(groups: Groups, most_rows: int, first: Tensor | None = None) -> Tensor:
    """Return numbers of groups that have no more than so many members together, sorted; at least one.

    Parameters
    ----------
    groups
        All of them.
    most_rows
        How many members.
    first
        The numbers of groups that are taken before others; others follow at random.
    """
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0)).to(groups.device)
    if first is not None:
        order = torch.cat([first, order[~torch.isin(order, first)]])
    fits = groups.sizes[order].cumsum(0) <= most_rows
    return order[: max(1, int(fits.sum()))].sort().values
