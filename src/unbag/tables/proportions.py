"""Counts per class, or proportions, of each group, checked against the rows that the group has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from unbag.aggregates.counts import check_counts
from unbag.groups import Groups
from unbag.tables.column_roles import SourceColumns
from unbag.tables.ids import is_missing
from unbag.tables.problems import Problem, in_rows, list_some
from unbag.tables.read import Table


def read_counts(
    columns: SourceColumns, table: Table, ids: pa.Array, sizes: np.ndarray
) -> tuple[np.ndarray | None, list[Problem]]:
    """Return a count per class for each group, or say what is wrong, and in which row.

    Groups without rows, of which ``sizes`` is zero, are not looked at.
    """
    parts = [_numbers(table, name) for name in columns.classes]
    problems = [one for _, found in parts for one in found]
    if problems:
        return None, problems
    values = np.stack([numbers for numbers, _ in parts], 1)  # (groups, classes)
    there = sizes > 0
    if columns.size is not None and (problems := _check_sizes(columns.size, table, ids, sizes)):
        return None, problems
    sums = values.sum(1)
    if bool((sums[there] == 1).all()) or not bool((values[there] == np.rint(values[there])).all()):
        return _from_shares(values, table, ids, sizes)
    problems = list(
        in_rows(
            there & (sums != sizes),
            lambda row: (
                f"the counts of group {ids[row].as_py()!r} add up to {sums[row]:g}, but it has {sizes[row]} "
                f"{'row' if sizes[row] == 1 else 'rows'}; counted were {list_some(columns.classes)}"
            ),
            file=table.file,
        )
    )
    return (None, problems) if problems else (values.astype(np.int64), [])


def _check_sizes(column: str, table: Table, ids: pa.Array, sizes: np.ndarray) -> list[Problem]:
    said, problems = _numbers(table, column)
    if problems:
        return problems
    wrong = in_rows(
        (sizes > 0) & (said != sizes),
        lambda row: f"group {ids[row].as_py()!r} is said to have {said[row]:g} members, but {sizes[row]} rows name it",
        file=table.file,
        column=column,
    )
    return list(wrong)


def _from_shares(
    values: np.ndarray, table: Table, ids: pa.Array, sizes: np.ndarray
) -> tuple[np.ndarray | None, list[Problem]]:
    """Turn proportions into counts by the rules that hold everywhere."""
    kept = np.flatnonzero(sizes > 0)
    if len(kept) == 0:
        return None, []
    offsets = torch.from_numpy(np.append(0, np.cumsum(sizes[kept])))
    names = ids.take(pa.array(kept)).to_pylist()
    groups = Groups(torch.arange(int(offsets[-1])), offsets, ids=names)
    counts = np.zeros(values.shape, dtype=np.int64)
    try:
        counts[kept] = check_counts(torch.from_numpy(values[kept]), groups, values.shape[1]).numpy()
    except ValueError as error:
        return None, [Problem("error", str(error), table.file)]
    return counts, []


def _numbers(table: Table, name: str) -> tuple[np.ndarray, list[Problem]]:
    """Return a column of counts, or name the rows that hold none."""
    column, file = table.column(name), table.file
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        example = next((value for value in column.to_pylist() if value is not None), None)
        message = (
            f"a column of counts must hold numbers, got {column.type}, for example {str(example)!r}; "
            "if it counts no class, say which columns do with --classes"
        )
        return np.zeros(0), [Problem("error", message, file, None, name)]
    missing = is_missing(column)
    numbers = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    endless = ~missing & ~np.isfinite(numbers)
    problems = [
        *in_rows(missing, lambda _: "the count is missing; write 0 where there are none", file=file, column=name),
        *in_rows(endless, lambda row: f"{numbers[row]} is no count", file=file, column=name),
        *in_rows(
            ~missing & ~endless & (numbers < 0),
            lambda row: f"{numbers[row]:g} is negative; counts are not",
            file=file,
            column=name,
        ),
    ]
    return numbers, problems
