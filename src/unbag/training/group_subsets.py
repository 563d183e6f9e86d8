"""Some groups without the other rows: excerpts of tables on disk, and batches of a ``torch.utils.data.DataLoader``."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler, default_collate

from unbag._kernels.segments import Segments
from unbag.aggregates.base import check_rows
from unbag.aggregates.observations import Observations
from unbag.data.alignment import read_per_group
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


def some_groups(groups: Groups, most_rows: int, first: Tensor | None = None) -> Tensor:
    """Return sorted numbers of random groups, those of ``first`` before others, with at most ``most_rows`` members.

    At least one group is returned.
    """
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0)).to(groups.device)
    if first is not None:
        order = torch.cat([first, order[~torch.isin(order, first)]])
    fits = groups.sizes[order].cumsum(0) <= most_rows
    return order[: max(1, int(fits.sum()))].sort().values


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


class GroupSampler(Sampler[list[int]]):
    """Draw batches of whole groups with at most ``max_rows`` members, or a single larger group.

    Each group comes once in an epoch, whose order follows from the seed and the number of the epoch. Where group sizes
    differ, the number of batches depends on their order; ``len`` is that of the next epoch. To resume after a restart,
    set ``epoch``, the number of the next epoch.

    Examples
    --------
    >>> sampler = GroupSampler(Groups.from_sizes([2, 1, 3, 1]), max_rows=3, shuffle=False)
    >>> list(sampler), len(sampler)
    ([[0, 1], [2], [3]], 3)
    """

    epoch: int
    """Number of the next epoch."""

    def __init__(self, groups: Groups, max_rows: int, *, shuffle: bool = True, seed: int = 0) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows!r}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed!r}")
        self.sizes, self.max_rows = groups.sizes.cpu(), max_rows
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._batches()
        self.epoch += 1
        return iter(batches)

    def __len__(self) -> int:
        return len(self._batches())

    def _batches(self) -> list[list[int]]:
        order = np.arange(len(self.sizes))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
        runs = Segments.from_sizes(self.sizes[torch.from_numpy(order)]).runs(self.max_rows)
        return [order[which].tolist() for which, _, _ in runs]


class GroupBatch(NamedTuple):
    """A batch of groups, for a step such as ``risk(model(batch.X), batch.groups, batch.z)``.

    ``X`` holds the rows that are in any of the groups, each once, ``groups`` the groups of these rows, ``z`` one
    observation per group, and ``numbers`` the numbers of the groups among all.
    """

    X: Any
    groups: Groups
    z: Tensor
    numbers: Tensor


class GroupCollator:
    """Turn numbers of groups into a :class:`GroupBatch`: a ``collate_fn``.

    Parameters
    ----------
    X
        All rows: a tensor, an array, a :class:`RowSource`, or a ``Dataset`` of single rows, which the workers of the
        loader read.
    groups, z
        Which rows form which group, and one observation per group, in their order or by their ids.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> groups = Groups.from_tuples([[0, 2], [2, 1]])
    >>> collate = GroupCollator(torch.tensor([[5.0], [6.0], [7.0]]), groups, z=[1, 0])
    >>> loader = DataLoader(range(2), batch_sampler=GroupSampler(groups, max_rows=4), collate_fn=collate)
    >>> next(iter(loader)).X.flatten().tolist()
    [5.0, 6.0, 7.0]
    """

    def __init__(self, X: Rows | np.ndarray | Dataset, groups: Groups, z: Any) -> None:
        check_rows(X, groups)
        self.X, self.groups, self.z = X, groups, read_per_group(z, groups)
        if len(self.z) != len(groups):
            raise ValueError(f"z must have one observation for each of {len(groups)} groups, got {len(self.z)}")

    def __call__(self, numbers: Sequence[int]) -> GroupBatch:
        """Return these groups as a batch."""
        which = torch.tensor(numbers, device=self.groups.device)
        rows, groups = self.groups.take(which).local()
        X = self.X
        gathered = gather_rows(X, rows) if isinstance(X, Rows) else default_collate([X[row] for row in rows.tolist()])
        return GroupBatch(gathered, groups, self.z[which], which)
