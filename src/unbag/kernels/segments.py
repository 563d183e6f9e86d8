"""Sums and spreads between memberships and groups.

Groups of one size are a dense block, for which a view is several times faster than an index.
"""

from __future__ import annotations

from torch import Tensor

from unbag.groups import Groups


def sum_per_group(values: Tensor, groups: Groups) -> Tensor:
    """Add up one value or row per membership: ``(memberships, ...)`` to ``(groups, ...)``."""
    if groups.uniform_size is not None:
        return values.view(len(groups), groups.uniform_size, *values.shape[1:]).sum(1)
    # One after the other, so in double precision: the roundings of a large group would pile up.
    wide = values.double() if values.is_floating_point() else values
    return wide.new_zeros(len(groups), *values.shape[1:]).index_add_(0, groups.segment, wide).to(values.dtype)


def spread(values: Tensor, groups: Groups) -> Tensor:
    """Hand the value of a group to each of its memberships: ``(groups, ...)`` to ``(memberships, ...)``."""
    if groups.uniform_size is not None:
        return values.repeat_interleave(groups.uniform_size, 0)
    return values[groups.segment]


def logsumexp_per_group(values: Tensor, groups: Groups) -> Tensor:
    """Log of the summed exponentials of one value per membership: ``(memberships,)`` to ``(groups,)``."""
    if groups.uniform_size is not None:
        return values.view(len(groups), groups.uniform_size).logsumexp(1)
    top = values.new_full((len(groups),), float("-inf")).scatter_reduce_(0, groups.segment, values, "amax")
    # A group of impossible members has no largest value to divide by; its sum is zero as it stands.
    shift = top.masked_fill(top.isinf(), 0)
    return sum_per_group((values - spread(shift, groups)).exp(), groups).log() + shift
