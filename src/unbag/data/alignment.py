"""What has one entry per group, brought into the order of the groups.

A mapping, and a table or column of pandas, say by their keys or their index which entry is that of which group: they
are matched to the ids of the groups by value, whatever their order, and refused where they have other ids. Values are
compared as Python compares them: 1 and 1.0 are the same, 1 and "1" are not. Anything else, an array, a list, a tensor,
a column of polars, is in the order of the groups already.

The index that pandas makes by itself, 0, 1, 2, ..., says nothing where ids are of another kind, and entries are then
in the order of the groups too. Where an id could be meant by one of its numbers, it is an index like any other.

The columns of a table with one column per class are matched to the names of the classes in the same way:
:func:`split_columns` returns the names of the columns, and :func:`match_columns` the order in which to read them. The
columns of arrays, and the columns 0, 1, 2, ... that pandas and polars number by themselves, have no names; they are in
the order of the classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from unbag._utils.checks import as_tensor
from unbag.data.groups import Groups
from unbag.data.ids import has_default_index, index_of


def read_per_group(value: Any, groups: Groups, name: str = "z") -> Tensor:
    """Return a tensor with one entry per group, in their order, from whatever a caller handed in.

    The number of entries is left to whoever knows what they are.

    Examples
    --------
    >>> read_per_group({"b": 0, "a": 1}, Groups.from_ids(["b", "a", "b"]))
    tensor([1, 0])
    """
    return read_with_columns(value, groups, name)[0]


def read_with_columns(value: Any, groups: Groups, name: str = "z") -> tuple[Tensor, list[Any] | None]:
    """Return the same tensor and the names of its columns; None where they have none.

    Examples
    --------
    >>> read_with_columns({"b": {"ill": 0, "well": 2}, "a": {"well": 1, "ill": 0}}, Groups.from_ids(["b", "a", "b"]))
    (tensor([[1, 0],
            [2, 0]]), ['well', 'ill'])
    """
    values, columns = split_columns(align(value, groups.ids, len(groups), name), name)
    return as_tensor(values, name, groups.device, groups.ids), columns


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
    rows = [place[one] for one in ids]
    return value.iloc[rows] if hasattr(value, "iloc") else value.take_rows(rows)


def split_columns(value: Any, name: str = "z") -> tuple[Any, list[Any] | None]:
    """Return the values of a table, and the names of its columns; None where they have none.

    A table is a table of pandas, polars or pyarrow, statements of :mod:`unbag.published` made from one of these, or a
    list of dicts or of rows of pandas, whose values are brought into the order of the first.

    Examples
    --------
    >>> split_columns([{"ill": 0, "well": 2}, {"well": 1, "ill": 0}])
    ([[0, 2], [0, 1]], ['ill', 'well'])
    >>> split_columns([[0, 2], [0, 1]])
    ([[0, 2], [0, 1]], None)
    """
    if isinstance(value, list | tuple) and value and (names := _names_of_row(value[0])) is not None:
        return [_read_row(row, names, name) for row in value], names
    columns = columns_of(value)
    value = value.as_subclass(Tensor) if isinstance(value, Tensor) else value
    if columns is None or _are_numbered(columns):
        return value, None
    names = [_as_name(one) for one in columns]
    if repeated := [one for one, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the columns of {name} must have different names, but {_name_ids(repeated)} occurs again")
    return value, names


def match_columns(columns: Sequence[Any] | None, classes: Sequence[Any], name: str = "z") -> list[int]:
    """Return the number of the column of each class.

    Parameters
    ----------
    columns
        The names of the columns. None, and the numbers 0 to k - 1 where classes have other names: the numbers of the
        classes.
    classes
        The names of the classes.
    name
        The name of the argument, for errors.

    Examples
    --------
    >>> match_columns(["ill", "well"], ["well", "ill"]), match_columns(None, ["well", "ill"])
    ([1, 0], [0, 1])
    """
    wanted = [_as_name(one) for one in classes]
    if columns is None:
        return [*range(len(wanted))]
    if set(columns) != set(wanted) and is_numbering(columns):
        wanted = [*range(len(columns))]
    if set(columns) != set(wanted):
        raise ValueError(
            f"the columns of {name} must be called as the classes: the columns are {[*columns]}, the classes are "
            f"{wanted}; rename the columns, or hand in {name}.to_numpy() if they are in the order of the classes"
        )
    return [[*columns].index(one) for one in wanted]


def is_numbering(names: Sequence[Any]) -> bool:
    """Whether names are the whole numbers from 0 on, in any order."""
    return not any(isinstance(one, bool | str) for one in names) and set(names) == set(range(len(names)))


def columns_of(value: Any) -> Any:
    """Return what a table calls its columns; None for anything else."""
    if getattr(value, "ndim", 2) == 1:  # a column of pandas, whose attributes are its entries
        return None
    return getattr(value, "column_names" if hasattr(value, "to_pylist") else "columns", None)


def _are_numbered(columns: Any) -> bool:
    """Whether columns were numbered by the library that made the table, for want of names."""
    if type(columns).__name__ == "RangeIndex":
        return bool(columns.start == 0 and columns.step == 1 and columns.name is None)
    return [*columns] == [f"column_{number}" for number in range(len(columns))]


def _as_name(value: Any) -> Any:
    """Return the name of a class or a column as a value that a target can hold: a string, a number or a boolean."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, str | int | float) else str(value)


def _names_of_row(row: Any) -> list[Any] | None:
    names = (
        [*row] if isinstance(row, Mapping) else None if index_of(row) is None or has_default_index(row) else row.index
    )
    return None if names is None else [_as_name(one) for one in names]


def _read_row(row: Any, names: list[Any], name: str) -> list[Any]:
    """Return the values of a row in the order of the names."""
    found = _names_of_row(row)
    if found is None or set(found) != set(names):
        raise ValueError(
            f"the entries of {name} must have the same names, but the first has {names}, and another "
            f"{'has none' if found is None else found}"
        )
    values = [*(row.values() if isinstance(row, Mapping) else row)]
    return [values[found.index(one)] for one in names]


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
