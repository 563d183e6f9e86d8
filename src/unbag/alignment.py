"""What has one entry per group, brought into the order of the groups.

A mapping, and a table or column of pandas, say by their keys or their index which entry is that of which group: they
are matched to the ids of the groups by value, whatever their order, and refused where they have other ids. Values are
compared as Python compares them: 1 and 1.0 are the same, 1 and "1" are not. Anything else, an array, a list, a tensor,
a column of polars, is in the order of the groups already.

The index that pandas makes by itself, 0, 1, 2, ..., says nothing where ids are of another kind, and entries are then
in the order of the groups too. Where an id could be meant by one of its numbers, it is an index like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from unbag.checks import as_tensor
from unbag.groups import Groups
from unbag.ids import has_default_index, index_of


def read_per_group(value: Any, groups: Groups, name: str = "z") -> Tensor:
    """Return a tensor with one entry per group, in their order, from whatever a caller handed in.

    The number of entries is left to whoever knows what they are.

    Examples
    --------
    >>> read_per_group({"b": 0, "a": 1}, Groups.from_ids(["b", "a", "b"]))
    tensor([1, 0])
    """
    return as_tensor(align(value, groups.ids, len(groups), name), name, groups.device, groups.ids)


def align(value: Any, ids: Sequence[Any] | None, n_groups: int, name: str = "z") -> Any:
    """Bring one entry per group into the order of the groups, where it says which is which.

    Parameters
    ----------
    value
        What a caller handed in.
    ids
        What the groups are called. Where they have no ids, a mapping has their numbers, and an index is not looked at.
    n_groups
        How many there are.
    name
        Of the argument, for errors.

    Examples
    --------
    >>> align({"b": 0, "a": 1}, ["a", "b"], 2)
    [1, 0]
    >>> align([0, 1], ["a", "b"], 2)
    [0, 1]
    """
    if isinstance(value, Mapping):
        wanted = range(n_groups) if ids is None else ids
        _check_same(list(value), wanted, name, "")
        return [value[one] for one in wanted]
    labels = index_of(value)
    if ids is None or labels is None or labels == list(ids):
        return value
    if has_default_index(value) and not _could_mean(labels, ids):
        return value
    _check_same(
        labels, ids, name, f"; drop the index with {name}.to_numpy() if its rows are in the order of the groups"
    )
    place = {label: number for number, label in enumerate(labels)}
    return value.iloc[[place[one] for one in ids]]


def _could_mean(labels: Collection[int], ids: Iterable[Any]) -> bool:
    """Whether any id is one of the numbers 0, 1, 2, ..., or reads like one."""
    numbers = set(labels)
    return any(_as_number(one) in numbers for one in ids)


def _as_number(one: Any) -> float | None:
    try:
        return float(one)
    except (TypeError, ValueError, OverflowError):
        return None


def _check_same(labels: Sequence[Any], ids: Sequence[Any], name: str, advice: str) -> None:
    if len(known := set(labels)) < len(labels):
        repeated = [one for one, count in Counter(labels).items() if count > 1]
        raise ValueError(
            f"the index of {name} must have each id once, but has {_name_ids(repeated)} again; "
            "keep one entry for each group"
        )
    wanted = set(ids)
    missing = [one for one in ids if one not in known]
    foreign = [one for one in labels if one not in wanted]
    if not missing and not foreign:
        return
    if {str(one) for one in missing} & {str(one) for one in foreign}:
        kinds = f"{type(missing[0]).__name__} and {type(foreign[0]).__name__}"
        advice = f"; they are of different types, {kinds}: give both the same{advice}"
    raise ValueError(
        f"{name} must have an entry for each id and for no other: {_name_ids(missing)} missing, "
        f"{_name_ids(foreign)} not among the ids{advice}"
    )


def _name_ids(ids: list[Any]) -> str:
    shown = ", ".join(map(repr, ids[:3])) or "none"
    return f"{shown} and {len(ids) - 3} more" if len(ids) > 3 else shown
