"""Weights of groups and of rows.

A group is one observation, and its weight says how often it counts: with weight 2 as two groups that are alike, with
weight 0 not at all. The weight of a row multiplies its term where there is one for each row, as in the unbiased risk.
A likelihood has one term for each group: rows of one group must then have equal weights, which are the weight of the
group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import as_tensor, raise_if_any
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups


def read_group_weights(value: Any, groups: Groups) -> Tensor:
    """Return one weight per group, in float64, finite and not negative; matched by id as z is.

    Examples
    --------
    >>> read_group_weights({"b": 2, "a": 0.5}, Groups.from_ids(["b", "a", "b"])).tolist()
    [0.5, 2.0]
    """
    weights = read_per_group(value, groups, "group_weights")
    return _check(weights, "group_weights", "group", len(groups), groups.name)


def read_sample_weight(value: Any, n_rows: int, device: torch.device) -> Tensor:
    """Return one weight per row, in float64, finite and not negative."""
    return _check(as_tensor(value, "sample_weight", device), "sample_weight", "row", n_rows)


def weights_of_groups(sample_weight: Any, groups: Groups, n_rows: int) -> Tensor:
    """Return the weight of each group from one per row, equal in all rows of a group, in float64.

    Examples
    --------
    >>> weights_of_groups([1.0, 1.0, 3.0], Groups.from_sizes([2, 1]), 3).tolist()
    [1.0, 3.0]
    """
    of_members = read_sample_weight(sample_weight, n_rows, groups.device)[groups.members]
    of_groups = of_members[groups.offsets[:-1]]
    if bool((wrong := of_members != groups.segments.expand(of_groups)).any()):
        first = int(groups.segment[wrong][0])
        own = of_members[groups.offsets[first] : groups.offsets[first + 1]].unique().tolist()
        raise ValueError(
            "sample_weight must be equal in all rows of a group, which is one observation, not so in "
            f"{groups.format_groups_holding(wrong)}: group {first} has {own[0]:g} and {own[1]:g}; give the weight of "
            "the group to each of its rows"
        )
    return of_groups


def _check(weights: Tensor, name: str, kind: str, n: int, name_one: Any = str) -> Tensor:
    if weights.shape != (n,):
        raise ValueError(f"{name} must have one entry per {kind}, shape ({n},); got shape {tuple(weights.shape)}")
    if weights.is_complex():
        raise TypeError(f"{name} must be real numbers, got {weights.dtype}")
    raise_if_any(
        ~((weights >= 0) & weights.isfinite()),
        f"{name} must be finite and not negative",
        lambda first: f"{name}[{first}] is {weights[first].item()}",
        name_one,
        kind,
    )
    return weights.double()
