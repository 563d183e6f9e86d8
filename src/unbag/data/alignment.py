"""Values per group in the order of the groups, and columns per class in the order of the classes.

Keys of mappings and indices of pandas are matched to the ids of the groups, and names of columns to the classes, by
value and in any order; unknown names are errors. Values are compared as in Python: 1 equals 1.0, and 1 does not equal
"1". Arrays, lists, tensors, default columns, and the default index of pandas unless an id could be one of its
numbers, have no names and are in order.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor

from unbag._utils.checks import as_tensor
from unbag._utils.problems import list_some
from unbag.data.groups import Groups, has_default_index, index_of


def read_per_group(value: Any, groups: Groups, name: str = "z") -> Tensor:
    """Return a tensor with the entries in the order of the groups; the caller checks their number."""
    return read_with_columns(value, groups, name)[0]


def read_with_columns(value: Any, groups: Groups, name: str = "z") -> tuple[Tensor, list[Any] | None]:
    """Return the same tensor and the names of its columns; None where they have none."""
    values, columns = split_columns(align(value, groups.ids, len(groups), name), name)
    return as_tensor(values, name, groups.device, groups.ids), columns


def align(value: Any, ids: Sequence[Any] | None, n_groups: int, name: str = "z") -> Any:
    """Bring values per group into the order of the groups, if they have keys or an index.

    Without ids, the keys of a mapping are the numbers of the groups, and an index is ignored.
    """
    if isinstance(value, Mapping):
        wanted = range(n_groups) if ids is None else ids
        _check_same(list(value), wanted, name, "")
        return [value[key] for key in wanted]
    labels = index_of(value)
    if ids is None or labels is None or labels == list(ids):
        return value
    if has_default_index(value) and not _could_mean(labels, ids):
        return value
    without = f"by {name}.index = None" if isinstance(value, Tensor) else f"with {name}.to_numpy()"
    _check_same(labels, ids, name, f"; drop the index {without} if its rows are in the order of the groups")
    place = {label: number for number, label in enumerate(labels)}
    rows = [place[group_id] for group_id in ids]
    return value.iloc[rows] if hasattr(value, "iloc") else value.take_rows(rows)


def split_columns(value: Any, name: str = "z") -> tuple[Any, list[Any] | None]:
    """Return the values of a table, and the names of its columns; None where they have none.

    A table is one of pandas, polars or pyarrow, statements of :mod:`unbag.published`, a column of structs, or a list of
    dicts, named tuples or pandas rows, whose values are brought into the order of the first.
    """
    if (rows := rows_with_names(value)) is not None:
        names = names_of_row(rows[0]) or []
        return [_read_row(row, names, name) for row in rows], names
    columns = columns_of(value)
    value = value.as_subclass(Tensor) if isinstance(value, Tensor) else value
    if columns is None or _are_numbered(columns):
        return value, None
    names = [_as_name(column) for column in columns]
    if repeated := [column for column, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the columns of {name} must have different names, but {list_some(repeated, 3)} is repeated")
    return value, names


def match_columns(columns: Sequence[Any] | None, classes: Sequence[Any], name: str = "z") -> list[int]:
    """Return the number of the column of each class.

    Columns without names are in the order of the classes, and the numbers 0 to k - 1 too, unless the name of a class
    is, or reads like, one of them.
    """
    wanted = [_as_name(label) for label in classes]
    if columns is None:
        return [*range(len(wanted))]
    if set(columns) != set(wanted) and is_numbering(columns) and not _could_mean(columns, wanted):
        wanted = [*range(len(columns))]
    if set(columns) != set(wanted):
        raise ValueError(
            f"the columns of {name} must have the names of the classes: the columns are {[*columns]}, the classes are "
            f"{wanted}{_describe_types(wanted, columns)}; rename the columns, or pass {name}.to_numpy() if they are in "
            "the order of the classes"
        )
    return [[*columns].index(label) for label in wanted]


def is_numbering(names: Sequence[Any]) -> bool:
    """Return whether names are the whole numbers from 0 on, in any order."""
    return not any(isinstance(name, bool | str) for name in names) and set(names) == set(range(len(names)))


def rows_with_names(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """Return the rows of a list or a column of dicts, named tuples, structs or pandas rows; None for anything else."""
    if isinstance(value, list | tuple):
        rows = value
    elif columns_of(value) is None and (read := getattr(value, "to_pylist", getattr(value, "to_list", None))):
        first: Any = next(iter(value), None)
        first = first.as_py() if hasattr(first, "as_py") else first
        rows = [] if names_of_row(first) is None else read()
    else:
        return None
    return rows if len(rows) and names_of_row(rows[0]) is not None else None


def columns_of(value: Any) -> Any:
    """Return the names of the columns of a table; None for anything else."""
    if getattr(value, "ndim", 2) == 1:  # the attributes of a pandas column are its entries
        return None
    return getattr(value, "column_names" if hasattr(value, "to_pylist") else "columns", None)


def names_of_row(row: Any) -> list[Any] | None:
    """Return the names of the entries of a row; None where they have none."""
    if isinstance(row, Mapping):
        return [_as_name(name) for name in row]
    if isinstance(row, tuple):
        return list(row._fields) if hasattr(row, "_fields") else None
    return None if index_of(row) is None or has_default_index(row) else [_as_name(name) for name in row.index]


def _read_row(row: Any, names: list[Any], name: str) -> list[Any]:
    """Return the values of a row in the order of the names."""
    found = names_of_row(row)
    if found is None or set(found) != set(names):
        raise ValueError(
            f"the entries of {name} must have the same names, but the first has {names}, and another has "
            f"{found or 'none'}"
        )
    values = [*(row.values() if isinstance(row, Mapping) else row)]
    return [values[found.index(column)] for column in names]


def _are_numbered(columns: Any) -> bool:
    """Return whether columns have the default names of a library."""
    if type(columns).__name__ == "RangeIndex":
        return bool(columns.start == 0 and columns.step == 1 and columns.name is None)
    return [*columns] == [f"column_{number}" for number in range(len(columns))]


def _as_name(value: Any) -> Any:
    """Return the name of a class or a column as a string, a number or a boolean, which a target can store."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, str | int | float) else str(value)


def _could_mean(labels: Collection[int], ids: Iterable[Any]) -> bool:
    """Return whether any id is, or reads like, one of the numbers 0, 1, 2, ..."""
    numbers = set(labels)
    for group_id in ids:
        with suppress(TypeError, ValueError, OverflowError):
            if float(group_id) in numbers:
                return True
    return False


def _check_same(labels: Sequence[Any], ids: Sequence[Any], name: str, advice: str) -> None:
    if repeated := [label for label, count in Counter(labels).items() if count > 1]:
        raise ValueError(
            f"the index of {name} must have each id once, but {list_some(repeated, 3)} is repeated; keep one entry for "
            "each group"
        )
    known, wanted = set(labels), set(ids)
    missing, unknown = [i for i in ids if i not in known], [label for label in labels if label not in wanted]
    if missing or unknown:
        raise ValueError(
            f"{name} must have exactly one entry for each id: {list_some(missing, 3) or 'none'} missing, "
            f"{list_some(unknown, 3) or 'none'} not among the ids{_describe_types(missing, unknown)}{advice}"
        )


def _describe_types(wanted: Sequence[Any], found: Sequence[Any]) -> str:
    """Return advice for names that are equal as text but differ in their types; empty for others."""
    as_text = {str(label): label for label in wanted}
    for label in found:
        if (same := as_text.get(str(label), label)) != label:
            kinds = f"{type(same).__name__} and {type(label).__name__}"
            return f"; the types differ, {kinds}: convert both to the same type"
    return ""
