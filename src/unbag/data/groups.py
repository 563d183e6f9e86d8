"""Groups of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.checks import as_tensor, describe, format_indices, is_integral, is_missing, raise_if_any


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows, stored flat: the members of group ``g`` are ``members[offsets[g]:offsets[g + 1]]``.

    A row may belong to several groups, to one, or to none. A group has at least one member. The order of members is
    kept, because it has a meaning for triplets and ranks.

    Parameters
    ----------
    members
        Row numbers, group after group, shape ``(memberships,)``.
    offsets
        Start of each group and the end of the last, shape ``(groups + 1,)``.
    n_rows
        Number of rows of the table, if known; logits with another number of rows then raise an error.
    ids
        Ids of the groups, by which observations are matched and errors name a group.

    Examples
    --------
    >>> groups = Groups.from_ids(["b", "a", "b"])
    >>> groups.members.tolist(), groups.offsets.tolist(), groups.ids
    ([1, 0, 2], [0, 1, 3], ['a', 'b'])
    >>> Groups.from_sizes([3, 1]).offsets.tolist(), Groups.from_offsets([0, 2, 5]).sizes.tolist()
    ([0, 3, 4], [2, 3])
    >>> Groups.from_tuples([[0, 4], [4, 2]]).members.tolist()
    [0, 4, 4, 2]
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
            raise ValueError(f"members are on {members.device}, but offsets are on {offsets.device}; move one of them")
        if len(offsets) < 2:
            raise ValueError("there are no groups: offsets needs at least a start and an end")
        if self.ids is not None and len(self.ids) != len(self):
            raise ValueError(f"ids has {len(self.ids)} names for {len(self)} groups")
        if offsets[0] != 0 or offsets[-1] != len(members):
            rule = f"offsets must start at 0 and end at the number of memberships, {len(members)}"
            raise ValueError(f"{rule}; got {int(offsets[0])} and {int(offsets[-1])}")
        if bool((empty := offsets.diff() < 1).any()):
            named = format_indices("group", empty, self.name)
            raise ValueError(f"offsets must increase, but {named} has no members; leave out empty groups")
        if bool((negative := members < 0).any()):
            raise ValueError(f"row number {int(members.min())} is negative; see {self.format_groups_holding(negative)}")
        if self.n_rows is not None and bool((beyond := members >= self.n_rows).any()):
            places = self.format_groups_holding(beyond)
            raise ValueError(f"row number {self.last_row} is out of range for {self.n_rows} rows; see {places}")

    @classmethod
    def from_ids(cls, ids: Any) -> Groups:
        """Make groups from one id per row, in any order; groups follow ``sorted(set(ids))``."""
        names, group_of_row = number_ids(ids)
        members = torch.argsort(group_of_row, stable=True)
        sizes = torch.bincount(group_of_row, minlength=len(names))
        return cls(members, Segments.from_sizes(sizes).offsets, n_rows=len(group_of_row), ids=names)

    @classmethod
    def from_sizes(cls, sizes: Any) -> Groups:
        """Make groups of consecutive rows; the index of a pandas series becomes the ids."""
        ids = _read_ids(sizes)
        sizes = _read_integers(sizes, "sizes", ndim=1)
        raise_if_any(sizes < 1, "sizes must be at least 1", lambda group: f"{sizes[group]}; leave out empty groups")
        members = torch.arange(int(sizes.sum()), device=sizes.device)
        return cls(members, Segments.from_sizes(sizes).offsets, n_rows=len(members), ids=ids)

    @classmethod
    def from_tuples(cls, tuples: Any, n_rows: int | None = None) -> Groups:
        """Make groups of equal size from row numbers of shape ``(groups, size)``, such as pairs and triplets.

        The index of a pandas table becomes the ids.
        """
        ids = _read_ids(tuples)
        tuples = _read_integers(tuples, "tuples", ndim=2)
        offsets = torch.arange(0, tuples.numel() + 1, tuples.shape[1], device=tuples.device)
        return cls(tuples.reshape(-1), offsets, n_rows=n_rows, ids=ids)

    @classmethod
    def from_offsets(cls, offsets: Any, members: Any = None) -> Groups:
        """Make groups from the start of each and the end of the last; without members, of consecutive rows."""
        offsets = _read_integers(offsets, "offsets", ndim=1)
        if members is not None:
            return cls(_read_integers(members, "members", ndim=1).to(offsets.device), offsets)
        n_rows = max(int(offsets[-1]), 0)
        return cls(torch.arange(n_rows, device=offsets.device), offsets, n_rows=n_rows)

    @classmethod
    def from_mask(cls, mask: Any) -> Groups:
        """Make groups from a padded batch: ``mask[g, i]`` is true where position ``i`` of group ``g`` is a member.

        Row numbers count all positions, padding included, as in the logits ``(groups, width, k)`` of the batch after
        ``.reshape(-1, k)``.
        """
        mask = _to_tensor(mask, "mask")
        if mask.ndim != 2 or mask.dtype != torch.bool:
            raise TypeError(f"mask must be a two-dimensional boolean tensor, got {describe(mask)}")
        return cls(mask.reshape(-1).nonzero().flatten(), Segments.from_sizes(mask.sum(1)).offsets, n_rows=mask.numel())

    def to_ids(self) -> Tensor:
        """Return the group number of each row, the inverse of :meth:`from_ids`; each row must be in one group."""
        if self.n_rows is None or not torch.equal(self.members.sort().values, self._arange(self.n_rows)):
            raise ValueError("to_ids needs groups in which each row of a known number of rows occurs exactly once")
        ids = torch.empty_like(self.members)
        ids[self.members] = self.segment
        return ids

    def to_tuples(self) -> Tensor:
        """Return row numbers of shape ``(groups, size)``, the inverse of :meth:`from_tuples`."""
        if self.uniform_size is None:
            raise ValueError(f"to_tuples needs groups of equal size; sizes go from {self.min_size} to {self.max_size}")
        return self.members.view(len(self), self.uniform_size)

    def to_mask(self) -> Tensor:
        """Return a padded mask of shape ``(groups, largest size)``, members first; see :meth:`from_mask`."""
        return self._arange(self.max_size) < self.sizes[:, None]

    def to(self, device: torch.device | str) -> Groups:
        """Return the same groups on another device."""
        return self._unchecked(self.members.to(device), self.offsets.to(device), self.ids)

    def take(self, which: Tensor) -> Groups:
        """Select groups by numbers or by a mask; row numbers do not change."""
        which = self._arange(len(self))[which]
        if len(which) == 0:
            raise ValueError("which selects no groups; select at least one")
        memberships, selected = self.segments.take(which)
        ids = None if self.ids is None else [self.ids[number] for number in which.tolist()]
        return self._unchecked(self.members[memberships], selected.offsets, ids)

    def local(self) -> tuple[Tensor, Groups]:
        """Return the distinct rows of the groups, and the same groups over these rows.

        For a step of a training loop, ``rows, local = groups.take(batch).local()``: the logits of ``X[rows]`` belong to
        ``local``.
        """
        rows, members = self.members.unique(return_inverse=True)
        return rows, self._unchecked(members, self.offsets, self.ids, len(rows))

    def name(self, group: int) -> str:
        """Return the number of a group, and its id where that differs, for an error."""
        if self.ids is None or self.ids[group] == group:
            return str(group)
        return f"{group} (id {self.ids[group]!r})"

    def format_groups_holding(self, flags: Tensor) -> str:
        """List the groups that contain a flagged membership, for an error."""
        holding = torch.zeros_like(self.sizes, dtype=torch.bool).index_fill_(0, self.segment[flags], True)
        return format_indices("group", holding, self.name)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def segments(self) -> Segments:
        """The memberships of each group without row numbers, the form that aggregates and kernels use."""
        return Segments(self.offsets)

    device = property(lambda self: self.members.device, doc="Device of members and offsets.")
    sizes = property(lambda self: self.segments.sizes, doc="Number of members of each group, shape ``(groups,)``.")
    min_size = property(lambda self: self.segments.min_size, doc="Size of the smallest group.")
    max_size = property(lambda self: self.segments.max_size, doc="Size of the largest group.")
    uniform_size = property(lambda self: self.segments.uniform_size, doc="The size that all groups share, or None.")
    segment = property(lambda self: self.segments.index, doc="Group of each membership, shape ``(memberships,)``.")

    @cached_property
    def last_row(self) -> int:
        """The largest row number in any group."""
        return int(self.members.max())

    @cached_property
    def in_row_order(self) -> bool:
        """Whether the members are the rows 0, 1, 2, ..."""
        return torch.equal(self.members, self._arange(len(self.members)))

    def gather(self, table: Tensor) -> Tensor:
        """Return the row of each membership; the table itself where that is equal."""
        return table if self.in_row_order and len(table) == len(self.members) else table[self.members]

    def _arange(self, end: int) -> Tensor:
        return torch.arange(end, device=self.device)

    def _unchecked(
        self, members: Tensor, offsets: Tensor, ids: Sequence[Any] | None, n_rows: int | None = None
    ) -> Groups:
        """Make groups from parts of validated groups without checks, which would synchronise with the device."""
        groups = object.__new__(Groups)
        groups.__dict__.update(members=members, offsets=offsets, n_rows=n_rows or self.n_rows, ids=ids)
        return groups


def _read_ids(value: Any) -> list[Any] | None:
    """Return the index of a table as ids of groups; None if it is the default index or not unique."""
    index = index_of(value)
    return None if index is None or has_default_index(value) or len(set(index)) < len(index) else index


def _to_tensor(value: Any, name: str) -> Tensor:
    return value if isinstance(value, Tensor) else as_tensor(value, name, torch.device("cpu"))


def _read_integers(value: Any, name: str, ndim: int) -> Tensor:
    tensor = _to_tensor(value, name)
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: there are no groups")
    if tensor.ndim != ndim or not is_integral(tensor) or tensor.dtype == torch.bool:
        shape = "a list" if ndim == 1 else "a table"
        raise TypeError(f"{name} must be {shape} of whole numbers, got {describe(tensor)}")
    return tensor.long()


def number_ids(ids: Any) -> tuple[list[Any], Tensor]:
    """Return the distinct ids, sorted, and for each row the number of its id among them."""
    ids = ids if isinstance(ids, Tensor) else as_array(ids)
    if ids.ndim != 1:
        raise ValueError(f"ids must have one dimension, one id per row; got shape {tuple(ids.shape)}")
    if len(ids) == 0:
        raise ValueError("ids is empty: there are no rows to group")
    missing = torch.tensor([is_missing(value) for value in ids.tolist()])
    if bool(missing.any()):
        rows = format_indices("row", missing)
        raise ValueError(f"ids has no value for {rows}; give each row a group, or leave the row out")
    if isinstance(ids, Tensor):
        distinct, number = torch.unique(ids, return_inverse=True)
        return distinct.tolist(), number
    try:
        unique, inverse = np.unique(ids, return_inverse=True)
    except TypeError as error:
        advice = "convert them to one type, for example with [str(i) for i in ids]"
        raise TypeError(f"ids cannot be sorted: {error}; {advice}") from error
    return unique.tolist(), torch.from_numpy(inverse.astype(np.int64))


def as_array(ids: Any) -> np.ndarray:
    """Return ids as an array, without conversion of single ids."""
    if hasattr(ids, "to_pylist"):  # a column of pyarrow, whose arrays of text have no NumPy view
        ids = ids.to_pylist()
    if hasattr(ids, "to_numpy"):  # a column of pandas or polars
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray):
        return ids
    if not isinstance(ids, Iterable):
        raise TypeError(f"ids must hold one id per row, got {describe(ids)}")
    return np.fromiter(ids, dtype=object)  # another type would convert [1, "1"] into two equal strings


def index_of(value: Any) -> list[Any] | None:
    """Return the index of a pandas table or column; None for anything else."""
    index = getattr(value, "index", None)
    return as_array(index).tolist() if hasattr(index, "tolist") else None  # the index of a list is a method


def has_default_index(value: Any) -> bool:
    """Return whether an index is 0, 1, 2, ..., the default of pandas."""
    index = value.index
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None
