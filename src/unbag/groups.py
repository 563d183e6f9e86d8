"""Which rows form which group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unbag.checks import as_tensor, describe, is_whole, name_some
from unbag.ids import number_ids


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
        What the caller calls the groups, for error messages.

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
            raise ValueError(f"offsets must not decrease; they do in {name_some('group', shrinking)}")
        if bool((empty := offsets.diff() == 0).any()):
            raise ValueError(f"{name_some('group', empty, self.name)} without members; leave empty groups out")
        if bool((negative := members < 0).any()):
            raise ValueError(f"row number {int(members.min())} is negative; see {self.name_holding(negative)}")
        if self.n_rows is not None and bool((beyond := members >= self.n_rows).any()):
            raise ValueError(
                f"row number {self.last_row} is out of range for {self.n_rows} rows; see {self.name_holding(beyond)}"
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
        return cls(members, _offsets_of(sizes), n_rows=len(group_of_row), ids=names)

    @classmethod
    def from_sizes(cls, sizes: Any) -> Groups:
        """Make groups of consecutive rows.

        Examples
        --------
        >>> Groups.from_sizes([3, 1]).offsets.tolist()
        [0, 3, 4]
        """
        sizes = _row_numbers(sizes, "sizes", ndim=1)
        if bool((wrong := sizes < 1).any()):
            raise ValueError(
                f"sizes must be at least 1: empty groups are refused; got less for {name_some('group', wrong)}"
            )
        n_rows = int(sizes.sum())
        return cls(torch.arange(n_rows, device=sizes.device), _offsets_of(sizes), n_rows=n_rows)

    @classmethod
    def from_tuples(cls, tuples: Any, n_rows: int | None = None) -> Groups:
        """Make groups of equal size from row numbers of shape ``(groups, size)``: pairs, triplets, sets.

        Examples
        --------
        >>> Groups.from_tuples([[0, 4], [4, 2]]).members.tolist()
        [0, 4, 4, 2]
        """
        tuples = _row_numbers(tuples, "tuples", ndim=2)
        count, size = tuples.shape
        offsets = torch.arange(0, count * size + 1, size, device=tuples.device)
        return cls(tuples.reshape(-1), offsets, n_rows=n_rows)

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
        return cls(mask.reshape(-1).nonzero().flatten(), _offsets_of(mask.sum(1)), n_rows=mask.numel())

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
        return self._trusted(self.members.to(device), self.offsets.to(device), self.ids)

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
        sizes = self.sizes[which]
        offsets = _offsets_of(sizes)
        shift = torch.repeat_interleave(self.offsets[:-1][which] - offsets[:-1], sizes)
        members = self.members[shift + self._arange(len(shift))]
        ids = None if self.ids is None else [self.ids[place] for place in which.tolist()]
        return self._trusted(members, offsets, ids)

    def runs(self, most: int) -> Iterator[tuple[slice, slice, Groups]]:
        """Cut into consecutive groups with so many memberships together at most, or a single group with more.

        Yields which groups they are, which memberships, and groups of these memberships, which keep their names.

        Examples
        --------
        >>> [(which, run.sizes.tolist()) for which, _, run in Groups.from_sizes([1, 2, 5, 1]).runs(3)]
        [(slice(0, 2, None), [1, 2]), (slice(2, 3, None), [5]), (slice(3, 4, None), [1])]
        """
        bounds = self.offsets.tolist()
        first = 0
        while first < len(self):
            last = max(bisect_right(bounds, bounds[first] + most) - 1, first + 1)
            run = _Run.from_sizes(self.sizes[first:last])
            run.__dict__.update(_whole=self, _first=first)
            yield slice(first, last), slice(bounds[first], bounds[last]), run
            first = last

    def name(self, group: int) -> str:
        """Name a group for an error: its number, and its id where it has one of its own."""
        if self.ids is None or self.ids[group] == group:
            return str(group)
        return f"{group} (id {self.ids[group]!r})"

    def name_holding(self, flags: Tensor) -> str:
        """Name the groups that hold a flagged membership, for an error."""
        holding = torch.zeros_like(self.sizes, dtype=torch.bool).index_fill_(0, self.segment[flags], True)
        return name_some("group", holding, self.name)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Where members and offsets are."""
        return self.members.device

    @cached_property
    def sizes(self) -> Tensor:
        """Number of members of each group, shape ``(groups,)``."""
        return self.offsets.diff()

    @cached_property
    def min_size(self) -> int:
        """Size of the smallest group."""
        return int(self.sizes.min())

    @cached_property
    def max_size(self) -> int:
        """Size of the largest group."""
        return int(self.sizes.max())

    @cached_property
    def uniform_size(self) -> int | None:
        """The size that all groups share, or None."""
        return self.max_size if self.min_size == self.max_size else None

    @cached_property
    def segment(self) -> Tensor:
        """Group number of every membership, shape ``(memberships,)``."""
        return torch.repeat_interleave(self._arange(len(self)), self.sizes)

    @cached_property
    def last_row(self) -> int:
        """The largest row number in any group."""
        return int(self.members.max())

    @cached_property
    def in_row_order(self) -> bool:
        """Whether the members are simply the rows 0, 1, 2, ..."""
        return torch.equal(self.members, self._arange(len(self.members)))

    def rows_of(self, table: Tensor) -> Tensor:
        """Return one row of a table per membership; the table itself where that is the same."""
        return table if self.in_row_order and len(table) == len(self.members) else table[self.members]

    def _arange(self, end: int) -> Tensor:
        return torch.arange(end, device=self.device)

    def _trusted(self, members: Tensor, offsets: Tensor, ids: Sequence[Any] | None) -> Groups:
        """Skip the checks, which wait for the device, where the pieces come from checked groups."""
        groups = object.__new__(Groups)
        groups.__dict__.update(members=members, offsets=offsets, n_rows=self.n_rows, ids=ids)
        return groups


class _Run(Groups):
    """Consecutive groups among others, which are called what they are called there."""

    _whole: Groups
    _first: int

    def name(self, group: int) -> str:
        return self._whole.name(self._first + group)


def _offsets_of(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _tensor(value: Any, name: str) -> Tensor:
    return value if isinstance(value, Tensor) else as_tensor(value, name, torch.device("cpu"))


def _row_numbers(value: Any, name: str, ndim: int) -> Tensor:
    tensor = _tensor(value, name)
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: there are no groups")
    if tensor.ndim != ndim or not is_whole(tensor) or tensor.dtype == torch.bool:
        shape = "a list" if ndim == 1 else "a table"
        raise TypeError(f"{name} must be {shape} of whole numbers, got {describe(tensor)}")
    return tensor.long()
