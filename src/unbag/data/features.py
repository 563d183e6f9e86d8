"""Encoding of the columns of a table as a matrix of numbers, fitted to training rows and saved with the model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor

from unbag._utils.problems import Problem, TableError, fail, in_rows, list_some
from unbag.data.columns import Table, as_categories, is_array, is_missing, read_arrays, whole_numbers
from unbag.data.row_source import SparseRows
from unbag.data.scaling import LARGEST

MAX_CATEGORIES = 1000
"""Texts of a column up to which they are categories, even if each is in few rows."""
MIN_ROWS_PER_CATEGORY = 10
"""Mean number of rows of each text, of more than that, from which they are categories rather than ids."""
WIDE_CATEGORY = 100
"""Categories of a column beyond which its indicators are worth storing as sparse rows."""
MAX_DENSE_BYTES = 2**26
"""Size of a dense table beyond which rows with such a column are sparse."""

NUMERIC_TEXT = r"^\s*[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?\s*$"
"""Text that is a number."""
FORMATTED_NUMBER = (
    r"^\s*[-+\x{2212}]?\s*[€$£¥]?\s*[0-9]{1,3}(([ '.,\x{2019}\x{a0}\x{202f}][0-9]{3})+|[0-9]*)"
    r"([.,][0-9]+)?\s*[%€$£¥]?\s*$"
)
"""Text that is a number with a unit or with a separator of thousands."""
DATE_TEXT = (
    r"^\s*([0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2}))"
    r"([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?)?\s*$"
)
"""Text that is a date, with or without a time."""
MIN_SHARE = 0.5
"""Share of numbers, or of dates, above which a column of text is reported."""

MICROSECONDS_PER_DAY = 86_400_000_000

Kind = Literal["number", "boolean", "date", "category", "array"]


@dataclass(frozen=True)
class Feature:
    """The encoding of one column of a table.

    Numbers, booleans and dates, in days since 1970, become one column, categories one indicator column per value, and
    arrays, a list of numbers in each row, one column per number.
    """

    name: str
    kind: Kind
    has_missing: bool = False  # whether a number is missing in a training row; it remains NaN, which all models accept
    values: tuple[str | None, ...] = ()  # categories of the training rows, with None if values are missing
    width: int = 0  # length of the arrays

    @property
    def encoded_names(self) -> list[str]:
        """Names of the columns of the matrix."""
        if self.kind == "array":
            return [f"{self.name}[{number}]" for number in range(self.width)]
        if self.kind == "category":
            return [f"{self.name} is missing" if value is None else f"{self.name} = {value}" for value in self.values]
        return [self.name]


Tally = Counter[tuple[str, str]]
"""Numbers of encoded values that do not occur in training rows, by what is unknown about them and column."""
UNKNOWN = "categories that training rows did not have"  # all columns of the feature are 0
FILLED = "missing, but no training row had a missing value here"  # to which no model can have adapted


def describe_tally(tally: Tally, file: str) -> list[Problem]:
    """Return the numbers of unknown values as notes."""
    notes = sorted(((what, name, count) for (what, name), count in tally.items() if count), key=lambda note: note[0])
    return [Problem("note", f"{count:,} values are {what}", file, None, name) for what, name, count in notes]


@dataclass(frozen=True)
class Preparation:
    """The encoding of a table as a matrix of numbers."""

    features: tuple[Feature, ...]

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns of the table."""
        return [feature.name for feature in self.features]

    @property
    def encoded_names(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [name for feature in self.features for name in feature.encoded_names]

    @property
    def dtype(self) -> np.dtype:
        """Type of the matrix: float32 if all features are arrays, else float64."""
        return np.dtype(np.float32 if all(feature.kind == "array" for feature in self.features) else np.float64)

    @property
    def csv_types(self) -> dict[str, pa.DataType]:
        """Types of the columns of a CSV file, so that all parts of a file are read with the same types."""
        kinds = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.string(), "category": pa.string()}
        return {feature.name: kinds[feature.kind] for feature in self.features if feature.kind in kinds}

    def encode(self, table: Table, tally: Tally | None = None, first_row: int = 0) -> np.ndarray:
        """Return the matrix of a table, ``(rows, columns)``, and count values that training rows did not have.

        ``first_row`` is the number of rows of the file before those of the table.
        """
        X, end = np.zeros((len(table), len(self.encoded_names)), self.dtype), 0
        for block in self._blocks(table, tally, first_row):
            start, end = end, end + block.shape[1]
            X[:, start:end] = block.toarray() if isinstance(block, csr_array) else block
        return X

    def encode_rows(self, table: Table, tally: Tally | None = None, first_row: int = 0) -> Tensor | SparseRows:
        """Return the rows of a table: sparse if a column has many categories, and the dense matrix would be large."""
        n_bytes = len(table) * len(self.encoded_names) * self.dtype.itemsize
        if n_bytes <= MAX_DENSE_BYTES or all(len(feature.values) <= WIDE_CATEGORY for feature in self.features):
            return torch.from_numpy(self.encode(table, tally, first_row))
        return SparseRows(hstack([*map(_store, self._blocks(table, tally, first_row))], format="csr"))

    def _blocks(self, table: Table, tally: Tally | None, first_row: int) -> Iterator[np.ndarray | csr_array]:
        """Yield the columns of each feature, ``(rows, columns of the feature)``; those of categories are sparse."""
        tally = Counter() if tally is None else tally
        return (_encode(feature, table, tally, first_row) for feature in self.features)


def _store(block: np.ndarray | csr_array) -> csr_array:
    """Return a sparse matrix in which all values of dense columns are stored, zeros included."""
    if isinstance(block, csr_array):
        return block
    n, width = block.shape
    return csr_array((block.ravel(), np.tile(np.arange(width), n), np.arange(n + 1) * width), shape=block.shape)


def fit_preparation(table: Table, names: Sequence[str], rows: np.ndarray | None = None) -> Preparation:
    """Fit the encoding of columns without errors of :func:`feature_problems` to training rows; None means all rows."""
    return Preparation(tuple(_fit(table, name, rows) for name in names))


def kind_of(column: pa.Array | pa.Field) -> Kind:
    """Return the kind of feature for the type of a column."""
    types = pa.types
    if is_array(column.type):
        return "array"
    if types.is_string(column.type):
        return "category"
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "date"
    return "boolean" if types.is_boolean(column.type) else "number"


def feature_problems(table: Table, name: str, leave_out: str = "leave it out") -> Iterator[Problem]:
    """Yield errors that prevent the use of a column as a feature; ``leave_out`` is the advice on how to omit it."""
    column = table.column(name)
    if pa.types.is_time(column.type) or pa.types.is_duration(column.type):
        advice = f"{leave_out}, or convert them to numbers, such as hours or days"
        message = f"the column holds times ({column.type}), which cannot be a feature; {advice}"
        yield Problem("error", message, table.file, None, name)
    elif is_array(column.type):
        try:
            read_arrays(column, None, table.file, 0, name)
        except TableError as error:
            yield from error.problems
    elif pa.types.is_null(column.type) or bool(is_missing(column).all()):
        yield Problem("error", f"the column has no values at all; {leave_out}", table.file, None, name)
    elif kind_of(column) == "category":
        if (distinct := pc.count_distinct(column).as_py()) > max(MAX_CATEGORIES, len(column) / MIN_ROWS_PER_CATEGORY):
            example = column.drop_null()[0].as_py()
            message = f"the column holds {distinct:,} different texts, for example {example!r}: ids or free text"
            text = Problem("error", f"{message}, not categories; {leave_out}", table.file, None, name)
            yield replace(find_number_texts(table, name, leave_out) or text, severity="error")
    else:
        values = as_numbers(column)
        yield from in_rows(
            np.abs(values) > LARGEST,  # NaN is missing, and not larger
            lambda row: f"{values[row]} is infinite or too large; correct it, or leave it empty",
            table.file,
            name,
        )


def find_number_texts(table: Table, name: str, keep: str) -> Problem | None:
    """Return a warning if most texts of a column are numbers or dates; ``keep`` is the advice if it is categorical."""
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
    matches, kind, form = numbers, "numbers", "numbers as in 1234.5"
    if cells[dates].sum() > cells[numbers].sum():
        matches, kind, form = dates, "dates", "dates as in 2020-12-31"
    share = cells[matches].sum() / cells.sum()
    if share < MIN_SHARE or pc.all(pc.match_substring_regex(values, "^[0-9]+$")).as_py():  # codes, written as text
        return None
    example = values[int((matches & ~plain if (matches & ~plain).any() else matches).argmax())].as_py()
    others, row, percent = "", None, 100
    if share < 1:
        count, bad = int(cells[~matches].sum()), values.filter(pa.array(~matches))
        row, percent = pc.index(pc.is_in(text, value_set=bad), True).as_py() + 1, min(round(100 * share), 99)
        others = f", but not those of {count:,} {'cell' if count == 1 else 'cells'}: {list_some(bad.to_pylist())}"
        form += " and leave other cells empty"
    message = (
        f"the column is read as categories, although {percent}% of its values are {kind} such as {example!r}{others}"
    )
    return Problem("warning", f"{message}; write {form}, or {keep}", table.file, row, name)


def as_numbers(column: pa.Array) -> np.ndarray:
    """Return a column as numbers, with NaN for missing values; dates in days since 1970."""
    if kind_of(column) == "date":
        zone = getattr(column.type, "tz", None)
        elapsed = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        return np.asarray(elapsed.cast(pa.float64()).to_numpy(zero_copy_only=False)) / MICROSECONDS_PER_DAY
    column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
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


def _encode(feature: Feature, table: Table, tally: Tally, first_row: int) -> np.ndarray | csr_array:
    """Return the columns of the matrix for a feature."""
    column = table.column(feature.name)

    def fail_in_row(row: int, message: str) -> TableError:
        return fail(message, table.file, first_row + row + 1, feature.name)

    if feature.kind == "array":
        return read_arrays(column, feature.width, table.file, first_row, feature.name)
    if is_array(column.type) and column.null_count == len(column):
        column = pa.nulls(len(column), pa.string())
    if feature.kind == "category" and not is_array(column.type):
        number = whole_numbers(pc.index_in(as_categories(column), value_set=pa.array(feature.values, pa.string())))
        known = number >= 0
        tally[UNKNOWN, feature.name] += int((~known).sum())
        offsets = np.append(0, known.cumsum())
        return csr_array((np.ones(known.sum()), number[known], offsets), shape=(len(column), len(feature.values)))
    if feature.kind == "date" and pa.types.is_string(column.type):
        column = _parse_dates(column)
    found = kind_of(column)  # times and durations are numbers by their kind
    suits = found == "date" if feature.kind == "date" else not pa.types.is_temporal(column.type)
    if found in ("category", "array") or not suits:
        if len(present := np.flatnonzero(~is_missing(column))):
            row, kind = int(present[0]), {"date": "dates", "category": "text"}.get(feature.kind, "numbers")
            held = f"the column held {kind} when the model was fitted, but {column[row].as_py()!r} here"
            raise fail_in_row(row, f"{held}; write {kind}")
        column = pa.nulls(len(column), pa.float64())
    numbers = as_numbers(column)
    if (too_large := np.abs(numbers) > LARGEST).any():
        row = int(too_large.argmax())
        raise fail_in_row(row, f"{numbers[row]} is infinite or too large; correct it, or leave it empty")
    if not feature.has_missing:
        tally[FILLED, feature.name] += int(np.isnan(numbers).sum())
    return numbers[:, None]


def _parse_dates(text: pa.Array) -> pa.Array:
    """Parse dates in ISO 8601; if that fails, return the first text that is not a date, with the others missing."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    row = 0
    with suppress(pa.ArrowInvalid):
        while text[row].cast(pa.timestamp("us")) is not None:
            row += 1
    return pc.if_else(pa.array(np.arange(len(text)) == row), text, None)
