"""Feature encoding: from the columns of a table to a matrix; fitted on training rows, saved with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem, TableError, fail, in_rows, list_some
from unbag.data.columns import Table, as_categories, is_array, is_missing, read_arrays, whole_numbers

MOST_CATEGORIES = 1000
LARGEST = float(np.finfo(np.float32).max)

NUMERIC_TEXT = r"^\s*[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?\s*$"
"""Text that is a number, as people write it."""
FORMATTED_NUMBER = (
    r"^\s*[-+\x{2212}]?\s*[€$£¥]?\s*[0-9]{1,3}(([ '.,\x{2019}\x{a0}\x{202f}][0-9]{3})+|[0-9]*)"
    r"([.,][0-9]+)?\s*[%€$£¥]?\s*$"
)
"""Text that is a number with a unit or with thousands set apart."""
DATE_TEXT = (
    r"^\s*([0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2}))"
    r"([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?)?\s*$"
)
"""Text that is a date, perhaps with a time."""
MOSTLY = 0.5
"""Share of numbers, or dates, from which a column of text is reported."""

MICROSECONDS_A_DAY = 86_400_000_000

Kind = Literal["number", "boolean", "date", "category", "array"]


@dataclass(frozen=True)
class Feature:
    """How one column is turned into numbers.

    Parameters
    ----------
    name
        Of the column.
    kind
        ``"number"``, ``"boolean"`` and ``"date"``, in days since 1970, become one column, ``"category"`` one of 0 and 1
        for each of its values, ``"array"``, a list of numbers in each row, one for each of them.
    has_missing
        Whether a number is missing in a training row. Missing numbers stay NaN, which all models read.
    values
        The categories of the training rows, as text; None among them where some are missing.
    width
        How many numbers an array has.
    """

    name: str
    kind: Kind
    has_missing: bool = False
    values: tuple[str | None, ...] = ()
    width: int = 0

    @property
    def encoded_names(self) -> list[str]:
        """What the columns of numbers are called."""
        if self.kind == "array":
            return [f"{self.name}[{place}]" for place in range(self.width)]
        if self.kind == "category":
            return [f"{self.name} is missing" if value is None else f"{self.name} = {value}" for value in self.values]
        return [self.name]


@dataclass
class Tally:
    """What was met when encoding that training rows did not have, by column."""

    unknown: dict[str, int] = field(default_factory=dict)
    """Categories that no training row has: all columns of the feature are 0."""
    filled: dict[str, int] = field(default_factory=dict)
    """Missing numbers in a column in which training rows had none, so that models could not learn what that means."""

    def count(self, which: dict[str, int], name: str, number: int) -> None:
        """Add to a count."""
        if number:
            which[name] = which.get(name, 0) + number

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            dict(Counter(self.unknown) + Counter(other.unknown)), dict(Counter(self.filled) + Counter(other.filled))
        )

    def as_problems(self, file: str) -> list[Problem]:
        """Return what was met, as notes."""
        unknown = [
            Problem("note", f"{count:,} values are categories that training rows did not have", file, None, name)
            for name, count in self.unknown.items()
        ]
        filled = [
            Problem(
                "note", f"{count:,} values are missing, but no training row had a missing value here", file, None, name
            )
            for name, count in self.filled.items()
        ]
        return [*unknown, *filled]


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table are turned into a matrix of numbers.

    Examples
    --------
    >>> from pathlib import Path
    >>> table = Table(Path("people.csv"), pa.table({"age": [30, None, 50], "town": ["Bonn", "Ulm", "Bonn"]}))
    >>> preparation = fit_preparation(table, ["age", "town"])
    >>> preparation.encoded_names
    ['age', 'town = Bonn', 'town = Ulm']
    >>> preparation.encode(table)
    array([[30.,  1.,  0.],
           [nan,  0.,  1.],
           [50.,  1.,  0.]])
    """

    features: tuple[Feature, ...]

    @property
    def names(self) -> list[str]:
        """The columns of the table that are read."""
        return [one.name for one in self.features]

    @property
    def encoded_names(self) -> list[str]:
        """The columns of the matrix."""
        return [name for one in self.features for name in one.encoded_names]

    @property
    def dtype(self) -> np.dtype:
        """The type of the matrix: float64, but for arrays alone float32, in which these usually are."""
        return np.dtype(np.float32 if all(one.kind == "array" for one in self.features) else np.float64)

    @property
    def csv_types(self) -> dict[str, pa.DataType]:
        """The types in which a CSV file is to be read, so that no part of it is understood differently."""
        kinds = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.string(), "category": pa.string()}
        return {one.name: kinds[one.kind] for one in self.features if one.kind in kinds}

    def encode(self, table: Table, tally: Tally | None = None, first_row: int = 0) -> np.ndarray:
        """Return the matrix of a table, ``(rows, columns)``.

        The tally counts what training rows did not have; ``first_row`` rows of the file came before.
        """
        tally = tally or Tally()
        X = np.zeros((len(table), len(self.encoded_names)), self.dtype)
        start = 0
        for one in self.features:
            width = len(one.encoded_names)
            _encode(one, table, X[:, start : start + width], tally, first_row)
            start += width
        return X


def fit_preparation(table: Table, names: Sequence[str], rows: np.ndarray | None = None) -> Preparation:
    """Learn from training rows how to turn columns into numbers, in which :func:`feature_problems` finds no error.

    ``rows`` are those that are trained on, None for all.
    """
    return Preparation(tuple(_fit(table, name, rows) for name in names))


def kind_of(column: pa.Array | pa.Field) -> Kind:
    """Return how a column is to be read.

    Examples
    --------
    >>> kind_of(pa.array([1, 2])), kind_of(pa.array(["a"])), kind_of(pa.array([True]))
    ('number', 'category', 'boolean')
    """
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return "number"
    if is_array(column.type):
        return "array"
    if pa.types.is_string(column.type):
        return "category"
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return "date"
    return "boolean" if pa.types.is_boolean(column.type) else "number"


def feature_problems(table: Table, name: str, leave_out: str = "leave it out") -> Iterator[Problem]:
    """Yield what keeps a column from being learned from; ``leave_out`` is how to go on without it."""
    column = table.column(name)
    if pa.types.is_time(column.type) or pa.types.is_duration(column.type):
        message = f"the column holds times ({column.type}), which are no feature as they are; {leave_out}, or make "
        yield Problem("error", f"{message}numbers of them, such as hours or days", table.file, None, name)
    elif is_array(column.type):
        try:
            read_arrays(column, None, table.file, 0, name)
        except TableError as error:
            yield from error.problems
    elif pa.types.is_null(column.type) or bool(is_missing(column).all()):
        yield Problem("error", f"the column has no values at all; {leave_out}", table.file, None, name)
    elif kind_of(column) == "category":
        distinct = pc.count_distinct(column).as_py()
        if distinct <= MOST_CATEGORIES:
            return
        if (numbers := find_number_texts(table, name, leave_out)) is not None:
            yield replace(numbers, severity="error")
            return
        yield Problem(
            "error",
            f"the column holds {distinct:,} different texts, for example {column.drop_null()[0].as_py()!r}: an id or "
            f"free text, not categories; {leave_out}",
            table.file,
            None,
            name,
        )
    else:
        values = as_numbers(column)
        yield from in_rows(
            np.abs(values) > LARGEST,  # NaN is missing, and not larger
            lambda row: f"{values[row]} is infinite, or too large to compute with; mend it, or leave it empty",
            file=table.file,
            column=name,
        )


def find_number_texts(table: Table, name: str, keep: str) -> Problem | None:
    """Return a warning if most texts of a column are numbers or dates, so that few others make it categorical.

    ``keep`` is how to say that the column is one of categories.
    """
    text = table.column(name)
    if not pa.types.is_string(text.type) or text.null_count == len(text):
        return None
    counts = text.drop_null().value_counts()
    values, cells = counts.field("values"), counts.field("counts").to_numpy()
    plain, formatted, dates = (
        pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
        for pattern in (NUMERIC_TEXT, FORMATTED_NUMBER, DATE_TEXT)
    )
    numbers = plain | formatted
    good, what, form = numbers, "numbers", "numbers as in 1234.5"
    if cells[dates].sum() > cells[numbers].sum():
        good, what, form = dates, "dates", "dates as in 2020-12-31"
    share = cells[good].sum() / cells.sum()
    if share < MOSTLY or pc.all(pc.match_substring_regex(values, "^[0-9]+$")).as_py():  # codes, written as text
        return None
    example = values[int((good & ~plain if (good & ~plain).any() else good).argmax())].as_py()
    others, row = "", None
    if share < 1:
        count, bad = int(cells[~good].sum()), values.filter(pa.array(~good))
        row = pc.index(pc.is_in(text, value_set=bad), True).as_py() + 1
        others = f", but not those of {count:,} {'cell' if count == 1 else 'cells'}: {list_some(bad.to_pylist())}"
        form += " and leave cells without one empty"
    percent = min(round(100 * share), 99) if others else 100
    message = (
        f"the column is read as categories, although {percent}% of its values are {what} such as {example!r}{others}"
    )
    return Problem("warning", f"{message}; write {form}, or {keep}", table.file, row, name)


def as_numbers(column: pa.Array) -> np.ndarray:
    """Return numbers, NaN where they are missing; dates in days since 1970."""
    if kind_of(column) == "date":
        zone = getattr(column.type, "tz", None)
        passed = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        return np.asarray(passed.cast(pa.float64()).to_numpy(zero_copy_only=False)) / MICROSECONDS_A_DAY
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _fit(table: Table, name: str, rows: np.ndarray | None) -> Feature:
    column = table.column(name)
    if is_array(column.type):
        return Feature(name, "array", width=read_arrays(column[:1], None, table.file, 0, name).shape[1])
    kind = kind_of(column)
    column = column if rows is None else column.take(pa.array(rows))
    if kind == "category":
        values: list[str | None] = sorted(column.drop_null().unique().to_pylist())
        return Feature(name, kind, values=(*values, *([None] if column.null_count else [])))
    return Feature(name, kind, has_missing=bool(is_missing(column).any()))


def _encode(one: Feature, table: Table, out: np.ndarray, tally: Tally, first_row: int) -> None:
    column = table.column(one.name)
    if one.kind == "array":
        out[:] = read_arrays(column, one.width, table.file, first_row, one.name)
        return
    if is_array(column.type) and column.null_count == len(column):
        column = pa.nulls(len(column), pa.string())
    if one.kind == "category" and not is_array(column.type):
        place = whole_numbers(pc.index_in(as_categories(column), value_set=pa.array(one.values, pa.string())))
        known = place >= 0
        out[np.flatnonzero(known), place[known]] = 1
        tally.count(tally.unknown, one.name, int((~known).sum()))
        return
    if one.kind == "date" and pa.types.is_string(column.type):
        column = _parse_dates(column)
    fits = kind_of(column) == "date" if one.kind == "date" else not pa.types.is_temporal(column.type)
    if pa.types.is_string(column.type) or is_array(column.type) or not fits:
        present = np.flatnonzero(~is_missing(column))
        if len(present):
            row, held = int(present[0]), {"date": "dates", "category": "text"}.get(one.kind, "numbers")
            raise fail(
                f"the column held {held} when the model was fitted, but {column[row].as_py()!r} here; write {held}",
                table.file,
                first_row + row + 1,
                one.name,
            )
        column = pa.nulls(len(column), pa.float64())
    numbers = as_numbers(column)
    wrong = np.abs(numbers) > LARGEST
    if wrong.any():
        row = int(wrong.argmax())
        raise fail(
            f"{numbers[row]} is infinite, or too large; mend it, or leave it empty",
            table.file,
            first_row + row + 1,
            one.name,
        )
    out[:, 0] = numbers
    if not one.has_missing:
        tally.count(tally.filled, one.name, int(np.isnan(numbers).sum()))


def _parse_dates(text: pa.Array) -> pa.Array:
    """Return dates that are written by ISO 8601; where one is not, the first such text, the others missing."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    bad = next(row for row, one in enumerate(text) if not _is_date(one))
    return pa.array([None] * bad + [text[bad].as_py()] + [None] * (len(text) - bad - 1), pa.string())


def _is_date(value: pa.Scalar) -> bool:
    try:
        value.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return True
