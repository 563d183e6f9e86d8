"""Which rows form which group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import as_tensor, describe, format_indices, is_integral
from unbag.data.ids import has_default_index, index_of, number_ids


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows, held flat: the members of group ``g`` are ``members[offsets[g]:offsets[g + 1]]``.

    A row may belong to several groups, to one, or to none. A group has at least one member. The order of
    members inside a group is kept: it carries meaning for triplets and ranks.

    Parameters
    ----------
    members
        Row numbers, group after group, shape ``(memberships,)``.
    offsets
        Where each group starts, and the end of the last, shape ``(groups + 1,)``.
    n_rows
        How many rows the table has, where known; logits with another number of rows are then refused.
    ids
        What the caller calls the groups: for error messages, and to find the observation of each by.

    Examples
    --------
    >>> groups = Groups.from_ids(["b", "a", "b"])
    >>> groups.members.tolist(), groups.offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    >>> len(groups), groups.sizes.tolist()
    (2, [1, 2])
    """

    members: Tensor
    offsets: Tensor
    n_rows: int | None = None
    ids: Sequence[Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        members, offsets = self.members, self.offsets
        for name, value in (("members", members), ("offsets", offsets)):
            if not isinstance(value, Tensor) or value.ndim != 1 or value.dtype != torch.int64:
                raise TypeError(f"{name} must be a one-dimensional int64 tensor, got {describe(value)}")
        if members.device != offsets.device:
            raise ValueError(f"members are on {members.device}, but offsets are on {offsets.device}; move one")
        if len(offsets) < 2:
            raise ValueError("there are no groups: offsets needs at least a start and an end")
        if self.ids is not None and len(self.ids) != len(self):
            raise ValueError(f"ids has {len(self.ids)} names for {len(self)} groups")
        if offsets[0] != 0 or offsets[-1] != len(members):
            raise ValueError(
                f"offsets must start at 0 and end at the number of memberships, {len(members)}; "
                f"got {int(offsets[0])} and {int(offsets[-1])}"
            )
        if bool((shrinking := offsets.diff() < 0).any()):
            raise ValueError(f"offsets must not decrease; they do in {format_indices('group', shrinking)}")
        if bool((empty := offsets.diff() == 0).any()):
            raise ValueError(f"{format_indices('group', empty, self.name)} without members; leave empty groups out")
        if bool((negative := members < 0).any()):
            raise ValueError(f"row number {int(members.min())} is negative; see {self.format_groups_holding(negative)}")
        if self.n_rows is not None and bool((beyond := members >= self.n_rows).any()):
            raise ValueError(
                f"row number {self.last_row} is out of range for {self.n_rows} rows; "
                f"see {self.format_groups_holding(beyond)}"
            )

    @classmethod
    def from_ids(cls, ids: Any) -> Groups:
        """Make groups from one id per row, in any order; groups follow ``sorted(set(ids))``.

        Examples
        --------
        >>> Groups.from_ids([7, 3, 7, 7]).members.tolist()
        [1, 0, 2, 3]
        """
        names, group_of_row = number_ids(ids)
        members = torch.argsort(group_of_row, stable=True)
        sizes = torch.bincount(group_of_row, minlength=len(names))
        return cls(members, Segments.from_sizes(sizes).offsets, n_rows=len(group_of_row), ids=names)

    @classmethod
    def from_sizes(cls, sizes: Any) -> Groups:
        """Make groups of consecutive rows; the index of a column of pandas is their ids.

        Examples
        --------
        >>> Groups.from_sizes([3, 1]).offsets.tolist()
        [0, 3, 4]
        """
        ids = _ids_of(sizes)
        sizes = _row_numbers(sizes, "sizes", ndim=1)
        if bool((wrong := sizes < 1).any()):
            raise ValueError(
                f"sizes must be at least 1: empty groups are refused; got less for {format_indices('group', wrong)}"
            )
        n_rows = int(sizes.sum())
        return cls(
            torch.arange(n_rows, device=sizes.device), Segments.from_sizes(sizes).offsets, n_rows=n_rows, ids=ids
        )

    @classmethod
    def from_tuples(cls, tuples: Any, n_rows: int | None = None) -> Groups:
        """Make groups of equal size from row numbers of shape ``(groups, size)``: pairs, triplets, sets.

        The index of a table of pandas is their ids.

        Examples
        --------
        >>> Groups.from_tuples([[0, 4], [4, 2]]).members.tolist()
        [0, 4, 4, 2]
        """
        ids = _ids_of(tuples)
        tuples = _row_numbers(tuples, "tuples", ndim=2)
        count, size = tuples.shape
        offsets = torch.arange(0, count * size + 1, size, device=tuples.device)
        return cls(tuples.reshape(-1), offsets, n_rows=n_rows, ids=ids)

    @classmethod
    def from_offsets(cls, offsets: Any, members: Any = None) -> Groups:
        """Make groups from the start of each and the end of the last; consecutive rows unless members are given.

        Examples
        --------
        >>> Groups.from_offsets([0, 2, 5]).sizes.tolist()
        [2, 3]
        """
        offsets = _row_numbers(offsets, "offsets", ndim=1)
        if members is not None:
            return cls(_row_numbers(members, "members", ndim=1).to(offsets.device), offsets)
        n_rows = max(int(offsets[-1]), 0)
        return cls(torch.arange(n_rows, device=offsets.device), offsets, n_rows=n_rows)

    @classmethod
    def from_mask(cls, mask: Any) -> Groups:
        """Make groups from a padded batch: ``mask[g, i]`` is true where slot ``i`` of group ``g`` is a real member.

        Row numbers count the slots of the whole batch, so that the logits of a padded batch of shape
        ``(groups, width, k)`` fit after ``.reshape(-1, k)``; padding is in no group.

        Examples
        --------
        >>> Groups.from_mask([[True, False], [True, True]]).members.tolist()
        [0, 2, 3]
        """
        mask = _tensor(mask, "mask")
        if mask.ndim != 2 or mask.dtype != torch.bool:
            raise TypeError(f"mask must be a two-dimensional boolean tensor, got {describe(mask)}")
        return cls(mask.reshape(-1).nonzero().flatten(), Segments.from_sizes(mask.sum(1)).offsets, n_rows=mask.numel())

    def to_ids(self) -> Tensor:
        """Return the group number of every row, the inverse of :meth:`from_ids`; each row must be in one group."""
        if self.n_rows is None or not torch.equal(self.members.sort().values, self._arange(self.n_rows)):
            raise ValueError("to_ids needs groups in which every row of a known number of rows occurs exactly once")
        ids = torch.empty_like(self.members)
        ids[self.members] = self.segment
        return ids

    def to_tuples(self) -> Tensor:
        """Return row numbers of shape ``(groups, size)``, the inverse of :meth:`from_tuples`."""
        if self.uniform_size is None:
            raise ValueError(f"to_tuples needs groups of equal size; sizes go from {self.min_size} to {self.max_size}")
        return self.members.view(len(self), self.uniform_size)

    def to_mask(self) -> Tensor:
        """Return a padded mask of shape ``(groups, largest size)``, members first, as :meth:`from_mask` reads it."""
        return self._arange(self.max_size) < self.sizes[:, None]

    def to(self, device: torch.device | str) -> Groups:
        """Return the same groups on another device."""
        return self._unchecked(self.members.to(device), self.offsets.to(device), self.ids)

    def take(self, which: Tensor) -> Groups:
        """Return the chosen groups, by number in the order chosen or by a mask; row numbers stay as they are.

        Examples
        --------
        >>> Groups.from_sizes([1, 2, 1]).take(torch.tensor([2, 1])).members.tolist()
        [3, 1, 2]
        """
        which = self._arange(len(self))[which]
        if len(which) == 0:
            raise ValueError("which chooses no groups; at least one is needed")
        memberships, chosen = self.segments.take(which)
        ids = None if self.ids is None else [self.ids[place] for place in which.tolist()]
        return self._unchecked(self.members[memberships], chosen.offsets, ids)

    def local(self) -> tuple[Tensor, Groups]:
        """Return the rows that are in any group, each once, and the same groups as groups of these.

        What a step of a training loop needs: ``rows, local = groups.take(batch).local()``, then run the model on
        ``X[rows]`` alone and hand its logits in together with ``local``.

        Examples
        --------
        >>> rows, local = Groups.from_tuples([[7, 2], [2, 5]]).local()
        >>> rows.tolist(), local.to_tuples().tolist()
        ([2, 5, 7], [[2, 0], [0, 1]])
        """
        rows, members = self.members.unique(return_inverse=True)
        return rows, self._unchecked(members, self.offsets, self.ids, len(rows))

    def name(self, group: int) -> str:
        """Name a group for an error: its number, and its id where it has one of its own."""
        if self.ids is None or self.ids[group] == group:
            return str(group)
        return f"{group} (id {self.ids[group]!r})"

    def format_groups_holding(self, flags: Tensor) -> str:
        """Name the groups that hold a flagged membership, for an error."""
        holding = torch.zeros_like(self.sizes, dtype=torch.bool).index_fill_(0, self.segment[flags], True)
        return format_indices("group", holding, self.name)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Where members and offsets are."""
        return self.members.device

    @cached_property
    def segments(self) -> Segments:
        """The memberships of each group, without the rows that they are of: what aggregates and kernels see."""
        return Segments(self.offsets)

    @property
    def sizes(self) -> Tensor:
        """Number of members of each group, shape ``(groups,)``."""
        return self.segments.sizes

    @property
    def min_size(self) -> int:
        """Size of the smallest group."""
        return self.segments.min_size

    @property
    def max_size(self) -> int:
        """Size of the largest group."""
        return self.segments.max_size

    @property
    def uniform_size(self) -> int | None:
        """The size that all groups share, or None."""
        return self.segments.uniform_size

    @property
    def segment(self) -> Tensor:
        """Group number of every membership, shape ``(memberships,)``."""
        return self.segments.index

    @cached_property
    def last_row(self) -> int:
        """The largest row number in any group."""
        return int(self.members.max())

    @cached_property
    def in_row_order(self) -> bool:
        """Whether the members are simply the rows 0, 1, 2, ..."""
        return torch.equal(self.members, self._arange(len(self.members)))

    def gather(self, table: Tensor) -> Tensor:
        """Return one row of a table per membership; the table itself where that is the same."""
        return table if self.in_row_order and len(table) == len(self.members) else table[self.members]

    def _arange(self, end: int) -> Tensor:
        return torch.arange(end, device=self.device)

    def _unchecked(
        self, members: Tensor, offsets: Tensor, ids: Sequence[Any] | None, n_rows: int | None = None
    ) -> Groups:
        """Skip the checks, which wait for the device, where the pieces come from checked groups."""
        groups = object.__new__(Groups)
        groups.__dict__.update(members=members, offsets=offsets, n_rows=n_rows or self.n_rows, ids=ids)
        return groups


def _ids_of(value: Any) -> list[Any] | None:
    """Return the index that a caller gave a table of groups; one with repetitions tells no group from another."""
    labels = index_of(value)
    if labels is None or has_default_index(value) or len(set(labels)) < len(labels):
        return None
    return labels


def _tensor(value: Any, name: str) -> Tensor:
    return value if isinstance(value, Tensor) else as_tensor(value, name, torch.device("cpu"))


def _row_numbers(value: Any, name: str, ndim: int) -> Tensor:
    tensor = _tensor(value, name)
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: there are no groups")
    if tensor.ndim != ndim or not is_integral(tensor) or tensor.dtype == torch.bool:
        shape = "a list" if ndim == 1 else "a table"
        raise TypeError(f"{name} must be {shape} of whole numbers, got {describe(tensor)}")
    return tensor.long()
