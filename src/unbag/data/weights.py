"""Weights of groups and of rows.

A group is one observation, and its weight is the number of times that it counts. The weight of a row multiplies its
term where there is one term per row, as in the unbiased risk. A likelihood has one term per group: the rows of a group
must then have equal weights, which are the weight of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import as_tensor, format_indices
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups


def read_group_weights(value: Any, groups: Groups) -> Tensor:
    """Return one finite, non-negative weight per group, in float64; entries are matched by id as those of z are.

    Examples
    --------
    >>> read_group_weights({"b": 2, "a": 0.5}, Groups.from_ids(["b", "a", "b"])).tolist()
    [0.5, 2.0]
    """
    weights = read_per_group(value, groups, "group_weights")
    return _check(weights, "group_weights", "group", len(groups), groups.name)


def read_sample_weight(value: Any, n_rows: int, device: torch.device) -> Tensor:
    """Return one finite, non-negative weight per row, in float64."""
    return _check(as_tensor(value, "sample_weight", device), "sample_weight", "row", n_rows)


def weights_of_groups(sample_weight: Any, groups: Groups, n_rows: int) -> Tensor:
    """Return the weight of each group, in float64, from weights of rows that are equal within each group.

    Examples
    --------
    >>> weights_of_groups([1.0, 1.0, 3.0], Groups.from_sizes([2, 1]), 3).tolist()
    [1.0, 3.0]
    """
    members = read_sample_weight(sample_weight, n_rows, groups.device)[groups.members]
    weights = members[groups.offsets[:-1]]
    if bool((different := members != groups.segments.expand(weights)).any()):
        group = int(groups.segment[different][0])
        unequal = members[groups.segment == group].unique().tolist()
        raise ValueError(
            "sample_weight must be equal in all rows of a group, which is one observation, but it is not in "
            f"{groups.format_groups_holding(different)}: group {group} has {unequal[0]:g} and {unequal[1]:g}; give "
            "each row the weight of its group"
        )
    return weights


def _check(weights: Tensor, argument: str, kind: str, n: int, name: Callable[[int], str] = str) -> Tensor:
    if weights.shape != (n,):
        raise ValueError(f"{argument} must have one entry per {kind}, shape ({n},); got shape {tuple(weights.shape)}")
    if weights.is_complex():
        raise TypeError(f"{argument} must be real numbers, got {weights.dtype}")
    if bool((wrong := ~((weights >= 0) & weights.isfinite())).any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"{argument} must be finite and not negative, but is not for {format_indices(kind, wrong, name)}: "
            f"{argument}[{first}] is {weights[first].item()}"
        )
    return weights.double()
