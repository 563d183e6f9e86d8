"""Ids that two files share: the same type on both sides, the row that each one means, and ids without a partner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem, fail, in_rows, list_some
from unbag.data.columns import Table, is_missing, whole_numbers


def shared_keys(
    left: Table, left_column: str, right: Table, right_columns: list[str]
) -> tuple[pa.Array, list[pa.Array], list[Problem]]:
    """Return the ids of two files in one type, or raise an error if they cannot be compared.

    Text on one side and whole numbers on the other are compared as whole numbers if no text would change by it, with a
    note. Text such as ``007`` would change, and is refused.

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
    ours, notes = _as_key(left, left_column), []
    theirs = [_as_key(right, name) for name in right_columns]
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
        text_is_ours = ours.type == pa.string()
        table, column, other = (left, left_column, right) if text_is_ours else (right, name, left)
        if text_is_ours:
            ours = _as_whole(ours, table, column, other)
        else:
            theirs[place] = _as_whole(theirs[place], table, column, other)
        message = f"these ids are text, but whole numbers in {other.file}; they are compared as whole numbers"
        notes.append(Problem("note", message, table.file, None, column))
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
    """Return errors of the rows that have no id."""
    bad = is_missing(table.column(column))
    return list(in_rows(bad, lambda _: "the id is missing; fill it in", file=table.file, column=column))


def unmatched_keys(
    table: Table, column: str, keys: pa.Array, unmatched: np.ndarray, *, others: pa.Array, where: str, drop: bool
) -> Iterator[Problem]:
    """Yield errors of rows whose ids the other file does not have, or one note if such rows are left out.

    Parameters
    ----------
    table, column, keys
        The file, the column of ids, and the ids.
    unmatched
        Which rows have no partner, (rows,).
    others
        The ids of the other file.
    where
        What the ids lack, as in ``"is not in column id of people.csv"``.
    drop
        Whether rows without a partner are left out.
    """
    if not unmatched.any():
        return
    unknown = keys.filter(pa.array(unmatched))
    if drop:
        rows = count_rows(len(unknown))
        message = f"{rows} left out, because the id {where}: {list_some(unknown.unique().to_pylist())}"
        yield Problem("note", message, table.file, None, column, left_out=True)
        return
    advice = written_differently(unknown, others)
    advice = advice or "mend one of the files, or leave out what does not match with --drop-unmatched"
    yield from in_rows(
        unmatched, lambda row: f"{keys[row].as_py()!r} {where}; {advice}", file=table.file, column=column
    )


def count_rows(count: int) -> str:
    """Return a number of rows as the beginning of a sentence."""
    return "1 row is" if count == 1 else f"{count:,} rows are"


def written_differently(unknown: pa.Array, known: pa.Array) -> str | None:
    """Return advice on ids that would be found if spaces, capitals and a trailing .0 did not matter."""
    if unknown.type != pa.string() or known.type != pa.string():
        return None
    places = find(_normalise(unknown), _normalise(known))
    rows = np.flatnonzero(places >= 0)
    if len(rows) == 0:
        return None
    here, there = unknown[int(rows[0])].as_py(), known[int(places[rows[0]])].as_py()
    return f"{here!r} here may be {there!r} there: write ids in the same way in both files"


def label_texts(table: Table, column: str) -> pa.Array:
    """Return labels as text, as class names are: 1.0 is 1."""
    return pc.replace_substring_regex(table.column(column).cast(pa.string()), r"^([0-9]+)\.0+$", r"\1")


def _normalise(text: pa.Array) -> pa.Array:
    text = pc.replace_substring_regex(pc.utf8_lower(pc.utf8_trim_whitespace(text)), r"\.0+$", "")
    return pc.replace_substring_regex(text, r"^0+([0-9])", r"\1")


def _as_key(table: Table, name: str) -> pa.Array:
    column = table.column(name)
    if pa.types.is_null(column.type):
        raise fail("all ids are missing; fill them in, or name another column", table.file, None, name)
    if pa.types.is_integer(column.type):
        if column.type == pa.uint64():
            large = pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())).fill_null(False)
            _refuse(large, "is too large for an id that is a number; write ids as text", table, name)
        return column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        fraction = ~np.isnan(values) & ((values != np.rint(values)) | (np.abs(values) > 2.0**53))
        _refuse(pa.array(fraction), "is no id; ids are text or whole numbers", table, name)
        return pc.if_else(pa.array(np.isnan(values)), None, column).cast(pa.int64())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.string())
    if not pa.types.is_string(column.type):
        raise fail(f"ids of type {column.type} cannot be compared; use text or whole numbers", table.file, None, name)
    return column


def _as_whole(keys: pa.Array, table: Table, name: str, other: Table) -> pa.Array:
    """Return text as whole numbers; refuse text that would change."""
    whole = pc.match_substring_regex(keys, r"^(0|-?[1-9][0-9]*)$").fill_null(True)
    message = f"is text, but ids in {other.file} are whole numbers; write both in the same way"
    _refuse(pc.invert(whole), message, table, name, "the id ")
    try:
        return keys.cast(pa.int64())
    except pa.ArrowInvalid:
        texts = keys.fill_null("0").to_pylist()
        large = pa.array([len(text) > 20 or not -(2**63) <= int(text) < 2**63 for text in texts])
        message = f"is too large for a whole number of 64 bits, as ids in {other.file} are; write ids there as text"
        _refuse(large, message, table, name, "the id ")
        raise


def _refuse(bad: pa.Array, message: str, table: Table, name: str, what: str = "") -> None:
    """Raise an error that names the first id of which a mask is true."""
    row = pc.index(bad, True).as_py()
    if row >= 0:
        raise fail(f"{what}{table.column(name)[row].as_py()!r} {message}", table.file, row + 1, name)
