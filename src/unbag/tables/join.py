"""Join two files by their ids, and name what has no partner in the other one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem, in_rows, list_some
from unbag.aggregates.registry import parameters
from unbag.data.columns import Table, is_missing
from unbag.tables.column_roles import InstanceColumns, SourceColumns
from unbag.tables.ids import find, label_texts, written_differently
from unbag.tables.options import RELATIONS
from unbag.tables.proportions import Options, read_counts
from unbag.tables.values import ColumnRead, Values

NO, YES = ("0", "no", "n", "false", "f", "nein"), ("1", "yes", "y", "true", "t", "ja", "j")
"""Words for answers, in small letters."""


@dataclass(frozen=True, eq=False)
class Match:
    """A file of observations and the file of the rows it speaks of."""

    source: Table
    columns: SourceColumns
    instances: Table
    of_instances: InstanceColumns
    options: Options
    """How the observations were published, and what to do about groups that do not fit."""
    drop: bool
    """Whether what has no partner is left out, with a note; otherwise it is an error."""
    alone: bool
    """Whether there are no other observations: otherwise rows may well have no group here."""
    classes: tuple[str, ...]
    """What the classes are called."""

    def read_observed(self, ids: pa.Array, sizes: np.ndarray) -> Values:
        """Return what was observed of each group, by its kind, or say what is wrong, and in which row.

        Groups without rows, of which ``sizes`` is zero, are not looked at.
        """
        outcome, column = self.columns.kind.outcome, str(self.columns.observed)
        if outcome in ("class_counts", "published_counts"):
            return read_counts(self.columns, self.source, ids, sizes, self.options)
        if outcome == "yes_no":
            z, problems = read_answers(self.source, column, relations="relation" in parameters(self.columns.kind))
            expected = "answer: 1, yes or true, and 0, no or false"
        elif outcome == "class":
            z, problems = _read_classes(self.source, column, self.classes)
            expected = "class"
        else:
            z, problems = read_numbers(self.source, column, "what was observed")
            expected = "number"
        expected = "relation of ranks" if z is not None and z.dtype == object else expected
        return Values(z, problems, [ColumnRead(column, expected, len(self.source))])


@dataclass(frozen=True, eq=False)
class Strangers:
    """Ids of one file that the other does not have."""

    table: Table
    column: str
    keys: pa.Array
    strange: np.ndarray  # (rows of the table,), where they are
    others: pa.Array
    """The ids that the other file has."""
    missing_where: str
    """What they lack, as in ``"is not in column id of people.csv"``."""

    def problems(self, drop: bool) -> Iterator[Problem]:
        """Name them as errors, or, where they are left out, as one note."""
        if not self.strange.any():
            return
        unknown = self.keys.filter(pa.array(self.strange))
        if drop:
            named = list_some(unknown.unique().to_pylist())
            message = f"{_rows(len(unknown))} left out, because the id {self.missing_where}: {named}"
            yield Problem("note", message, self.table.file, None, self.column, left_out=True)
            return
        advice = written_differently(unknown, self.others)
        advice = advice or "mend one of the files, or leave out what does not match with --drop-unmatched"
        yield from in_rows(
            self.strange,
            lambda row: f"{self.keys[row].as_py()!r} {self.missing_where}; {advice}",
            file=self.table.file,
            column=self.column,
        )


def without_group(match: Match, nowhere: np.ndarray) -> Iterator[Problem]:
    """Count rows that name no group."""
    if not nowhere.any():
        return
    left_out = match.drop or not match.alone
    fate = "left out" if left_out else "without a group"
    advice = "" if left_out else "; fill it in, or leave them out with --drop-unmatched"
    yield Problem(
        "note" if left_out else "error",
        f"{_rows(int(nowhere.sum()))} {fate}, first row {int(nowhere.argmax()) + 1}{advice}",
        match.instances.file,
        None,
        match.of_instances.group,
        left_out=left_out,
    )


def read_answers(table: Table, column: str, *, relations: bool = False) -> tuple[np.ndarray | None, list[Problem]]:
    """Return a column of 0 and 1, or of relations; or say which rows hold neither.

    Examples
    --------
    >>> from pathlib import Path
    >>> read_answers(Table(Path("bags.csv"), pa.table({"z": [True, False]})), "z")
    (array([1, 0]), [])
    >>> print(read_answers(Table(Path("bags.csv"), pa.table({"z": [1, 2]})), "z")[1][0])
    bags.csv, row 2, column z: what was observed must be 0 or 1, or yes or no, got 2
    """
    given = table.column(column)
    expected = "must be 0 or 1, or yes or no"
    if relations and pa.types.is_string(given.type):
        expected = f"must be one of {' '.join(RELATIONS)}, or 0 and 1 in the whole column"
        values, allowed = pc.utf8_trim_whitespace(given), pa.array(RELATIONS)
    elif pa.types.is_boolean(given.type):
        values, allowed = given.cast(pa.int64()), pa.array([0, 1])
    elif pa.types.is_integer(given.type) or pa.types.is_floating(given.type):
        values, allowed = given.cast(pa.float64()), pa.array([0.0, 1.0])
    else:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(given.cast(pa.string())))
        places, allowed = find(words, pa.array([*NO, *YES])), pa.array([0, 1])
        values = pa.array(np.where(places < 0, -1, places >= len(NO)))
    fits = pc.is_in(values, value_set=allowed, skip_nulls=True).to_numpy(zero_copy_only=False)
    missing = is_missing(given)

    def say(row: int) -> str:
        if missing[row]:
            return f"what was observed is missing; it {expected}"
        return f"what was observed {expected}, got {given[row].as_py()!r}"

    if problems := list(in_rows(~fits, say, file=table.file, column=column)):
        return None, problems
    answers = values.to_numpy(zero_copy_only=False)
    return (answers if answers.dtype == object else answers.astype(np.int64)), []


def _read_classes(table: Table, column: str, classes: tuple[str, ...]) -> tuple[np.ndarray | None, list[Problem]]:
    """Return a column of names of classes as their numbers, or say which rows hold others."""
    texts = label_texts(table, column)
    numbers = find(texts, pa.array(classes))

    def say(row: int) -> str:
        return f"what was observed must be one of the classes {list_some(classes)}, got {texts[row].as_py()!r}"

    problems = list(in_rows(numbers < 0, say, file=table.file, column=column))
    return (None, problems) if problems else (numbers.astype(np.int64), [])


def read_numbers(table: Table, column: str, what: str) -> tuple[np.ndarray | None, list[Problem]]:
    """Return a column of numbers, or say which rows hold none, of what."""
    given = table.column(column)
    numeric = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    numbers = np.full(len(given), np.nan)
    if any(fits(given.type) for fits in numeric):
        numbers = given.cast(pa.float64()).to_numpy(zero_copy_only=False)

    def say(row: int) -> str:
        return f"{what} must be a number, got {given[row].as_py()!r}"

    if problems := list(in_rows(~np.isfinite(numbers), say, file=table.file, column=column)):
        return None, problems
    return (numbers.astype(np.int64) if (numbers == np.rint(numbers)).all() else numbers), []


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count:,} rows are"
