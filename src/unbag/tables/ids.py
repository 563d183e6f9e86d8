"""Ids that two files share: the same type on both sides, and which row each one means."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem, fail, in_rows
from unbag.data.columns import Table, is_missing, whole_numbers

WHOLE = r"^(0|-?[1-9][0-9]*)$"


def shared_keys(
    left: Table, left_column: str, right: Table, right_columns: list[str]
) -> tuple[pa.Array, list[pa.Array], list[Problem]]:
    """Return the ids of two files in one type, or say why they cannot be compared.

    Text on one side and whole numbers on the other are compared as whole numbers if no text would change by it, and a
    note says so. Text such as ``007`` would, and is refused.

    Examples
    --------
    >>> from pathlib import Path
    >>> people = Table(Path("people.parquet"), pa.table({"ward": [1, 2]}))
    >>> wards = Table(Path("wards.csv"), pa.table({"ward": ["2", "1"]}))
    >>> left, (right,), notes = shared_keys(people, "ward", wards, ["ward"])
    >>> left.to_pylist(), right.to_pylist()
    ([1, 2], [2, 1])
    >>> print(notes[0])
    wards.csv, column ward: these ids are text, but whole numbers in people.parquet; they are compared as whole numbers
    """
    ours = _as_key(left, left_column)
    theirs = [_as_key(right, name) for name in right_columns]
    notes = []
    for place, name in enumerate(right_columns):
        if ours.type == theirs[place].type:
            continue
        if {ours.type, theirs[place].type} != {pa.int64(), pa.string()}:
            raise fail(
                f"these ids are of type {theirs[place].type}, but of type {ours.type} in column {left_column} of "
                f"{left.file}; write both in the same way",
                right.file,
                None,
                name,
            )
        if ours.type == pa.string():
            ours = _as_whole(ours, left, left_column, right)
            notes.append(_converted(left, left_column, right))
        else:
            theirs[place] = _as_whole(theirs[place], right, name, left)
            notes.append(_converted(right, name, left))
    return ours, theirs, notes


def repeated(keys: pa.Array) -> np.ndarray:
    """Return where an id occurs that an earlier row has already; missing ids are no repetition."""
    codes = codes_of(keys)
    order = np.argsort(codes, kind="stable")
    again = np.zeros(len(codes), dtype=bool)
    again[order[1:]] = codes[order[1:]] == codes[order[:-1]]
    return again & (codes >= 0)


def codes_of(values: pa.Array) -> np.ndarray:
    """Return a number for each distinct value, -1 where there is none: (n,)."""
    return whole_numbers(values.dictionary_encode().indices)


def find(keys: pa.Array, among: pa.Array) -> np.ndarray:
    """Return the place of each key among others, -1 where it is missing or unknown: (n,)."""
    return whole_numbers(pc.index_in(keys, value_set=among, skip_nulls=True))


def missing_keys(table: Table, column: str) -> list[Problem]:
    """Name the rows that have no id."""
    bad = is_missing(table.column(column))
    return list(in_rows(bad, lambda _: "the id is missing; fill it in", file=table.file, column=column))


def written_differently(unknown: pa.Array, known: pa.Array) -> str | None:
    """Say whether ids that were not found would be if spaces, capitals and a trailing .0 did not matter.

    Examples
    --------
    >>> written_differently(pa.array(["7.0"]), pa.array(["7", "8"]))
    "'7.0' here may be '7' there: write ids in the same way in both files"
    """
    if unknown.type != pa.string() or known.type != pa.string():
        return None
    place = pc.index_in(_loosely(unknown), value_set=_loosely(known), skip_nulls=True)
    rows = np.flatnonzero(whole_numbers(place) >= 0)
    if len(rows) == 0:
        return None
    one = int(rows[0])
    return (
        f"{unknown[one].as_py()!r} here may be {known[place[one].as_py()].as_py()!r} there: "
        "write ids in the same way in both files"
    )


def _loosely(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(
        pc.replace_substring_regex(pc.utf8_lower(pc.utf8_trim_whitespace(text)), r"\.0+$", ""), r"^0+([0-9])", r"\1"
    )


def _as_key(table: Table, name: str) -> pa.Array:
    column = table.column(name)
    if pa.types.is_null(column.type):
        raise fail("all ids are missing; fill them in, or name another column", table.file, None, name)
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        fraction = ~np.isnan(values) & ((values != np.rint(values)) | (np.abs(values) > 2.0**53))
        if fraction.any():
            row = int(fraction.argmax())
            raise fail(f"{values[row]} is no id; ids are text or whole numbers", table.file, row + 1, name)
        return pc.if_else(pa.array(np.isnan(values)), None, column).cast(pa.int64())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.string())
    if not pa.types.is_string(column.type):
        raise fail(f"ids of type {column.type} cannot be compared; use text or whole numbers", table.file, None, name)
    return column


def _as_whole(keys: pa.Array, table: Table, name: str, other: Table) -> pa.Array:
    whole = pc.match_substring_regex(keys, WHOLE)
    bad = ~whole.fill_null(True).to_numpy(zero_copy_only=False)
    if bad.any():
        row = int(bad.argmax())
        raise fail(
            f"the id {keys[row].as_py()!r} is text, but ids in {other.file} are whole numbers; write both in the same "
            "way",
            table.file,
            row + 1,
            name,
        )
    try:
        return keys.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise fail(f"an id is too large for a whole number of 64 bits: {error}", table.file, None, name) from error


def _converted(table: Table, name: str, other: Table) -> Problem:
    return Problem(
        "note",
        f"these ids are text, but whole numbers in {other.file}; they are compared as whole numbers",
        table.file,
        None,
        name,
    )


def label_texts(table: Table, column: str) -> pa.Array:
    """Return labels as text, as class names are: 1.0 is 1."""
    text = table.column(column).cast(pa.string())
    return pc.replace_substring_regex(text, r"^([0-9]+)\.0+$", r"\1")
