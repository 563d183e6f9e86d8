"""Segments of a flat sequence: the memberships of groups, without row numbers."""

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

    Segments of equal size are a dense block, for which a view is several times faster than an index. The offsets
    (int64) are the start of each segment and the end of the last, shape ``(segments + 1,)``; no segment is empty.

    Examples
    --------
    >>> segments = Segments.from_sizes([2, 3])
    >>> segments.sum(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])), segments.expand(torch.tensor([7, 8]))
    (tensor([ 3., 12.]), tensor([7, 7, 8, 8, 8]))
    """

    offsets: Tensor

    @classmethod
    def from_sizes(cls, sizes: Tensor | Sequence[int]) -> Segments:
        """Make segments from the number of entries of each, without a check that it is positive."""
        sizes = torch.as_tensor(sizes)
        return cls(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Device of the offsets."""
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
        """Segment of each entry, shape ``(entries,)``."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.device), self.sizes)

    def sum(self, values: Tensor) -> Tensor:
        """Sum the values or rows of each segment: ``(entries, ...)`` to ``(segments, ...)``."""
        if self.uniform_size is not None:
            return values.view(len(self), self.uniform_size, *values.shape[1:]).sum(1)
        # Sequential sums accumulate rounding errors, hence double precision.
        wide = values.double() if values.is_floating_point() else values
        return wide.new_zeros(len(self), *values.shape[1:]).index_add_(0, self.index, wide).to(values.dtype)

    def expand(self, values: Tensor) -> Tensor:
        """Repeat the value of each segment for its entries: ``(segments, ...)`` to ``(entries, ...)``."""
        if self.uniform_size is not None:
            return values.repeat_interleave(self.uniform_size, 0)
        return values[self.index]

    def amax(self, values: Tensor) -> Tensor:
        """Compute the maximum of the values of each segment: ``(entries,)`` to ``(segments,)``."""
        return values.new_full((len(self),), float("-inf")).scatter_reduce_(0, self.index, values, "amax")

    def logsumexp(self, values: Tensor) -> Tensor:
        """Compute the logsumexp of the values of each segment: ``(entries,)`` to ``(segments,)``."""
        if self.uniform_size is not None:
            return values.view(len(self), self.uniform_size).logsumexp(1)
        top = self.amax(values)
        shift = top.masked_fill(top.isinf(), 0)  # of entries that are all -inf, whose sum is zero without a shift
        return self.sum((values - self.expand(shift)).exp()).log() + shift

    def take(self, which: Tensor) -> tuple[Tensor, Segments]:
        """Return the entries of selected segments, and the segments over these entries."""
        selected = Segments.from_sizes(self.sizes[which])
        start = torch.repeat_interleave(self.offsets[:-1][which] - selected.offsets[:-1], selected.sizes)
        return start + torch.arange(len(start), device=self.device), selected

    def runs(self, max_entries: int) -> Iterator[tuple[slice, slice, Segments]]:
        """Split into runs of consecutive segments with at most ``max_entries`` entries, or of a single segment.

        Yields the segments and the entries of each run as slices, and the segments over these entries.
        """
        bounds = self.offsets.tolist()
        first = 0
        while first < len(self):
            last = max(bisect_right(bounds, bounds[first] + max_entries) - 1, first + 1)
            yield slice(first, last), slice(bounds[first], bounds[last]), Segments.from_sizes(self.sizes[first:last])
            first = last
