"""Ids that two files share: one type on both sides, the row of each id, and ids without a partner."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.problems import NAMED, Problem, fail, in_rows, list_some
from unbag.data.columns import Table, is_missing, whole_numbers
from unbag.data.groups import Groups


def shared_keys(
    left: Table, left_column: str, right: Table, right_columns: list[str], *, loose: bool = False
) -> tuple[pa.Array, list[pa.Array], list[Problem]]:
    """Return the ids of two files in one type: as they are if they have one, otherwise as text, with a note.

    Whole numbers are compared with text as they are written: 7 is the id 7, but neither 007 nor 7.0. ``loose`` matches
    ids that differ in case, spaces, leading zeros or a trailing .0, with a note for each pair.
    """
    columns = [(left, left_column, right), *((right, name, left) for name in right_columns)]
    keys = [_as_key(table, name) for table, name, _ in columns]
    notes: list[Problem] = []
    if len({key.type for key in keys}) > 1:
        for (table, name, other), key in zip(columns, keys, strict=True):
            if pa.types.is_string(key.type):
                message = f"these ids are text, but numbers in {other.file}; they are compared as text"
                notes.append(Problem("note", message, table.file, None, name))
        keys = [key.cast(pa.string()) for key in keys]
    if loose and pa.types.is_string(keys[0].type):
        others = pa.chunked_array(keys[1:]).combine_chunks()
        for place, (table, name, _) in enumerate(columns):
            known = keys[0] if place else others
            unmatched = keys[place].filter(pc.invert(pc.is_in(keys[place], value_set=known))).drop_null().unique()
            if pairs := list(match_normalised(unmatched.to_pylist(), known.drop_null().unique().to_pylist())):
                listed = "; ".join(f"{here!r} with {there!r}" for here, there in pairs)
                message = f"ids were matched although they are written differently: {listed}"
                notes.append(Problem("note", message, table.file, None, name))
                found = pc.index_in(keys[place], value_set=pa.array([here for here, _ in pairs]))
                keys[place] = pc.coalesce(pa.array([there for _, there in pairs]).take(found), keys[place])
    return keys[0], keys[1:], notes


def _as_key(table: Table, name: str) -> pa.Array:
    """Return ids as whole numbers or text."""
    column = table.column(name)
    if pa.types.is_null(column.type):
        raise fail("all ids are missing; fill them in, or name another column", table.file, None, name)
    if pa.types.is_integer(column.type):
        too_large = column.type == pa.uint64() and (pc.max(column).as_py() or 0) >= 2**63
        return column if too_large else column.cast(pa.int64())
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        fraction = ~np.isnan(values) & ((values != np.rint(values)) | (np.abs(values) > 2.0**53))
        if fraction.any():
            row = int(fraction.argmax())
            raise fail(f"{values[row]} is not an id; ids are text or whole numbers", table.file, row + 1, name)
        return pc.if_else(pa.array(np.isnan(values)), None, column).cast(pa.int64())
    if not (pa.types.is_string(column.type) or pa.types.is_temporal(column.type)):
        raise fail(f"ids of type {column.type} cannot be compared; use text or whole numbers", table.file, None, name)
    return column.cast(pa.string())


def normalise(text: str) -> str:
    """Return a text without what people vary: case, spaces, a trailing ``.0`` and leading zeros."""
    text = re.sub(r"\.0+$", "", re.sub(r"\s+", " ", text).strip().casefold())
    return re.sub(r"^0+(?=\d)", "", text)


def match_normalised(unmatched: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids that are equal when normalised, if only one matches."""
    by_form = defaultdict(set)
    for text in known:
        by_form[normalise(text)].add(text)
    for text in unmatched:
        if len(matches := by_form.get(normalise(text), set())) == 1:
            yield text, next(iter(matches))


def find_similar(unknown: pa.Scalar, known: pa.Array) -> str | None:
    """Return advice on an id that would be found if case, spaces, leading zeros and a trailing .0 did not matter."""
    if unknown.type != pa.string() or known.type != pa.string():
        return None
    pair = next(match_normalised([unknown.as_py()], known.drop_null().unique().to_pylist()), None)
    advice = "write ids in the same way in both files, or fit with --tidy"
    return pair and f"{pair[0]!r} here may be {pair[1]!r} there: {advice}"


def codes_of(values: pa.Array) -> np.ndarray:
    """Return a number for each distinct value, -1 where there is none: (n,)."""
    return whole_numbers(values.dictionary_encode().indices)


def repeated(keys: pa.Array) -> np.ndarray:
    """Return where an id occurs that an earlier row has already; missing ids are no repetition."""
    codes = codes_of(keys)
    again = np.ones(len(codes), dtype=bool)
    again[np.unique(codes, return_index=True)[1]] = False
    return again & (codes >= 0)


def find(keys: pa.Array, among: pa.Array) -> np.ndarray:
    """Return the place of each key among others, -1 where it is missing or unknown: (n,)."""
    return whole_numbers(pc.index_in(keys, value_set=among, skip_nulls=True))


def missing_keys(table: Table, column: str) -> list[Problem]:
    """Return errors of the rows that have no id."""
    bad = is_missing(table.column(column))
    return list(in_rows(bad, lambda _: "the id is missing; fill it in, or delete the row", table.file, column))


def unmatched_keys(
    table: Table, column: str, keys: pa.Array, unmatched: np.ndarray, *, others: pa.Array, where: str, drop: bool | None
) -> Iterator[Problem]:
    """Yield errors of rows whose ids the other file does not have, one for each id, or one note if rows are left out.

    ``unmatched`` marks the rows without a partner, and ``others`` are the ids of the other file. ``where`` is what the
    ids lack, as in ``"is not in column id of people.csv"``. If ``drop`` is None, rows cannot be left out.
    """
    rows = np.flatnonzero(unmatched)
    if not len(rows):
        return
    unknown = keys.take(pa.array(rows))
    _, first, counts = np.unique(codes_of(unknown), return_index=True, return_counts=True)
    distinct = unknown.take(pa.array(first))
    hints = [find_similar(id, others) for id in distinct[:NAMED]]
    if drop:
        message = f"{count_rows(len(rows))} left out, because the id {where}: {list_some(distinct.to_pylist())}"
        if found := [hint for hint in hints if hint]:
            message += f"; {found[0]}"
        yield Problem("warning" if found else "note", message, table.file, None, column, left_out=True)
        return
    advice = "correct one of the files" + ("" if drop is None else ", or skip unmatched rows with --drop-unmatched")
    for id, row, count, hint in zip(distinct.to_pylist(), rows[first].tolist(), counts, hints, strict=False):
        times = f" ({count:,} rows)" if count > 1 else ""
        yield Problem("error", f"{id!r}{times} {where}; {hint or advice}", table.file, row + 1, column)
    if more := int(counts[NAMED:].sum()):
        message = f"the same in {more:,} more {'row' if more == 1 else 'rows'}"
        yield Problem("error", message, table.file, None, column)


def match_members(
    rows: Table, id: str, table: Table, members: list[str], *, drop: bool | None, loose: bool = False
) -> tuple[np.ndarray, list[Problem]]:
    """Return the row of each member of pairs or triplets, (rows of the file, members), -1 for none, and problems."""
    of_rows, of_members, problems = shared_keys(rows, id, table, members, loose=loose)
    message = "the id {!r} is that of an earlier row already; ids must differ"
    problems += in_rows(repeated(of_rows), lambda row: message.format(of_rows[row].as_py()), rows.file, id)
    places = np.stack([find(keys, of_rows) for keys in of_members], 1)
    drop = drop and bool((places >= 0).all(1).any())  # where nothing matches, nothing would be left
    where = f"is not in column {id} of {rows.file}"
    for name, keys, place in zip(members, of_members, places.T, strict=True):
        problems += missing_keys(table, name)
        unknown = (place < 0) & ~is_missing(keys)
        problems += unmatched_keys(table, name, keys, unknown, others=of_rows, where=where, drop=drop)
    return places, problems


def make_groups(which: np.ndarray, ids: pa.Array) -> Groups:
    """Return groups of rows by the number of the group of each row, (rows,), -1 for none; each group has rows."""
    members = np.argsort(which, kind="stable")[np.count_nonzero(which < 0) :]
    offsets = np.append(0, np.cumsum(np.bincount(which[members], minlength=len(ids))))
    return Groups(torch.from_numpy(members), torch.from_numpy(offsets), n_rows=len(which), ids=ids.to_pylist())


def count_rows(count: int) -> str:
    """Return a number of rows as the beginning of a sentence."""
    return "1 row is" if count == 1 else f"{count:,} rows are"
