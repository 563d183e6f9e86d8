"""Segments of a flat sequence: what kernels and aggregates see of groups, without the rows of any caller."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segments:
    """Consecutive segments of a sequence: segment ``g`` holds the entries ``offsets[g]`` to ``offsets[g + 1] - 1``.

    The memberships of groups lie in memory one group after the other. Sums over the members of each group need no more
    than that. Segments of one size are a dense block, for which a view is several times faster than an index.

    Parameters
    ----------
    offsets
        Where each segment starts, and the end of the last, int64, shape ``(segments + 1,)``; each holds an entry.

    Examples
    --------
    >>> segments = Segments.from_sizes([2, 3])
    >>> segments.sum(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])), segments.expand(torch.tensor([7, 8]))
    (tensor([ 3., 12.]), tensor([7, 7, 8, 8, 8]))
    """

    offsets: Tensor

    @classmethod
    def from_sizes(cls, sizes: Tensor | Sequence[int]) -> Segments:
        """Make segments from the number of entries of each, at least 1, which is not checked."""
        sizes = torch.as_tensor(sizes)
        return cls(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Where the offsets are."""
        return self.offsets.device

    @cached_property
    def total(self) -> int:
        """Number of entries of all segments."""
        return len(self) * self.uniform_size if self.uniform_size is not None else int(self.offsets[-1])

    @cached_property
    def sizes(self) -> Tensor:
        """Number of entries of each segment, shape ``(segments,)``."""
        return self.offsets.diff()

    @cached_property
    def min_size(self) -> int:
        """Size of the smallest segment."""
        return int(self.sizes.min())

    @cached_property
    def max_size(self) -> int:
        """Size of the largest segment."""
        return int(self.sizes.max())

    @cached_property
    def uniform_size(self) -> int | None:
        """The size that all segments share, or None."""
        return self.max_size if self.min_size == self.max_size else None

    @cached_property
    def index(self) -> Tensor:
        """The segment of every entry, shape ``(entries,)``."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.device), self.sizes)

    def sum(self, values: Tensor) -> Tensor:
        """Add up one value or row per entry: ``(entries, ...)`` to ``(segments, ...)``."""
        if self.uniform_size is not None:
            return values.view(len(self), self.uniform_size, *values.shape[1:]).sum(1)
        # One after the other, so in double precision: the roundings of a large segment would pile up.
        wide = values.double() if values.is_floating_point() else values
        return wide.new_zeros(len(self), *values.shape[1:]).index_add_(0, self.index, wide).to(values.dtype)

    def expand(self, values: Tensor) -> Tensor:
        """Hand the value of a segment to each of its entries: ``(segments, ...)`` to ``(entries, ...)``."""
        if self.uniform_size is not None:
            return values.repeat_interleave(self.uniform_size, 0)
        return values[self.index]

    def logsumexp(self, values: Tensor) -> Tensor:
        """Log of the summed exponentials of one value per entry: ``(entries,)`` to ``(segments,)``."""
        if self.uniform_size is not None:
            return values.view(len(self), self.uniform_size).logsumexp(1)
        top = values.new_full((len(self),), float("-inf")).scatter_reduce_(0, self.index, values, "amax")
        # A segment of impossible entries has no largest value to divide by; its sum is zero as it stands.
        shift = top.masked_fill(top.isinf(), 0)
        return self.sum((values - self.expand(shift)).exp()).log() + shift

    def take(self, which: Tensor) -> tuple[Tensor, Segments]:
        """Return the entries of the chosen segments, and the segments over them.

        Examples
        --------
        >>> entries, chosen = Segments(torch.tensor([0, 1, 3, 4])).take(torch.tensor([2, 1]))
        >>> entries.tolist(), chosen.sizes.tolist()
        ([3, 1, 2], [1, 2])
        """
        chosen = Segments.from_sizes(self.sizes[which])
        start = torch.repeat_interleave(self.offsets[:-1][which] - chosen.offsets[:-1], chosen.sizes)
        return start + torch.arange(len(start), device=self.device), chosen

    def runs(self, most: int) -> Iterator[tuple[slice, slice, Segments]]:
        """Cut into consecutive segments with so many entries together at most, or a single segment with more.

        Yields which segments they are, which entries, and the segments over these entries.

        Examples
        --------
        >>> [(which, run.sizes.tolist()) for which, _, run in Segments.from_sizes([1, 2, 5, 1]).runs(3)]
        [(slice(0, 2, None), [1, 2]), (slice(2, 3, None), [5]), (slice(3, 4, None), [1])]
        """
        bounds = self.offsets.tolist()
        first = 0
        while first < len(self):
            last = max(bisect_right(bounds, bounds[first] + most) - 1, first + 1)
            yield slice(first, last), slice(bounds[first], bounds[last]), Segments.from_sizes(self.sizes[first:last])
            first = last
