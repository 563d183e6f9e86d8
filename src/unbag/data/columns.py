"""Arrow tables with columns of a few basic types."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import fail


@dataclass(frozen=True, eq=False)
class Table:
    """An Arrow table and its file."""

    path: Path
    data: pa.Table
    categorical: tuple[str, ...] = ()  # columns that are categories whatever their text looks like

    @property
    def file(self) -> str:
        """Name of the file, for messages."""
        return str(self.path)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.data.column_names)

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column as one array."""
        return self.data.column(name).combine_chunks()

    def first(self, name: str) -> pa.Array:
        """Return the first row of a column."""
        return self.data.column(name).slice(0, 1).combine_chunks()


def plain_types(data: pa.Table, file: str) -> pa.Table:
    """Convert columns to basic types: dictionaries become text, and empty text becomes missing."""
    columns = [_convert(data.column(number), name, file) for number, name in enumerate(data.column_names)]
    return pa.table(columns, names=data.column_names)


def as_categories(column: pa.Array) -> pa.Array:
    """Convert categories to text, with 1 and 1.0 as the same category; the text of a number depends on it alone."""
    text = column.cast(pa.string())
    if not pa.types.is_floating(column.type):
        return text
    values = column.to_numpy(zero_copy_only=False)
    whole = (values == np.rint(values)) & (np.abs(values) < 2.0**63)
    without_point = pa.array(np.where(whole, values, 0).astype(np.int64)).cast(pa.string())
    return pc.if_else(pa.array(np.isnan(values)), None, pc.if_else(pa.array(whole), without_point, text))


def is_missing(values: pa.Array) -> np.ndarray:
    """Return a mask of missing values, NaN included."""
    return np.asarray(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False))


def whole_numbers(indices: pa.Array) -> np.ndarray:
    """Convert indices to int64, with -1 for missing ones."""
    return indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _convert(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):  # values of any type are names of categories
        try:
            chunks = [as_categories(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
        except pa.ArrowNotImplementedError:
            advice = f"convert them to text (intervals of pandas: X[{name!r}].astype(str))"
            message = f"the categories of the column are of type {kind.value_type}; {advice}"
            raise fail(message, file, None, name) from None
        return _convert(pa.chunked_array(chunks, pa.string()), name, file)
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column, kind = column.cast(pa.string()), pa.string()
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (numeric or is_array(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind)):
        raise fail(f"the column is of type {kind}, which is neither a number nor text; leave it out", file, None, name)
    return column


def is_array(kind: pa.DataType) -> bool:
    """Return whether each row of a column of this type is a list of numbers, such as an embedding."""
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def read_arrays(column: pa.Array, width: int | None, file: str, first_row: int, name: str) -> np.ndarray:
    """Return lists of equal length as a matrix, ``(rows, width)``, or raise an error that names the first bad row.

    ``first_row`` is the number of rows of the file before the column; without a width, the first row decides.
    """
    if not is_array(column.type):
        raise fail(f"each row needs a list of numbers, but the column is of type {column.type}", file, None, name)
    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    width = max(1, int(lengths[0])) if width is None else width
    if (wrong := lengths != width).any():
        row = int(wrong.argmax())
        got = "none" if lengths[row] < 0 else f"one of {lengths[row]}"
        raise fail(f"each row needs a list of {width} numbers, got {got}", file, first_row + row + 1, name)
    rows = np.asarray(pc.list_flatten(column).to_numpy(zero_copy_only=False)).reshape(-1, width)
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
        finite = np.isfinite(rows.astype(np.float32, copy=False)).all(1)
    if not finite.all():
        row = int(finite.argmin())
        message = "a number in the list is missing, infinite or too large; correct it"
        raise fail(message, file, first_row + row + 1, name)
    return rows
