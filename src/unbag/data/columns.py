"""Tables of Arrow, with columns of a few plain types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import fail


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was read, and the file it came from."""

    path: Path
    data: pa.Table

    @property
    def file(self) -> str:
        """What to call the file in a sentence."""
        return str(self.path)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.data.column_names)

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        return self.data.column(name).combine_chunks()

    def first(self, name: str) -> pa.Array:
        """Return a column of the first row alone."""
        return self.data.column(name).slice(0, 1).combine_chunks()


def plain_types(data: pa.Table, file: str) -> pa.Table:
    """Return a table of the few types that all else works with: dictionaries become text, empty text is missing."""
    columns = [_plain(data.column(place), name, file) for place, name in enumerate(data.column_names)]
    return pa.table(columns, names=data.column_names)


def as_categories(column: pa.Array) -> pa.Array:
    """Return categories as text; whole numbers without a point, so that 1 and 1.0 are the same.

    Each number by itself, so that a piece of a column reads as the whole does.
    """
    text = column.cast(pa.string())
    if not pa.types.is_floating(column.type):
        return text
    values = column.to_numpy(zero_copy_only=False)
    whole = (values == np.rint(values)) & (np.abs(values) < 2.0**63)
    without_point = pa.array(np.where(whole, values, 0).astype(np.int64)).cast(pa.string())
    return pc.if_else(pa.array(np.isnan(values)), None, pc.if_else(pa.array(whole), without_point, text))


def is_missing(values: pa.Array) -> np.ndarray:
    """Return where there is no value: (n,)."""
    return np.asarray(pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False))


def whole_numbers(indices: pa.Array) -> np.ndarray:
    """Return places as numpy has them, -1 for those that are missing."""
    return indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _plain(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):  # whatever its values are, they are names of categories
        try:
            chunks = [as_categories(one.dictionary).take(one.indices) for one in column.chunks]
        except pa.ArrowNotImplementedError:
            raise fail(
                f"the categories of the column are of type {kind.value_type}; make text of them (intervals of pandas: "
                f"X[{name!r}].astype(str))",
                file,
                None,
                name,
            ) from None
        return _plain(pa.chunked_array(chunks, pa.string()), name, file)
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column, kind = column.cast(pa.string()), pa.string()
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (numeric or is_array(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind)):
        raise fail(f"the column is of type {kind}, which is no single number or word; leave it out", file, None, name)
    return column


def is_array(kind: pa.DataType) -> bool:
    """Return whether each row of a column of this type is a list of numbers, such as an embedding.

    Examples
    --------
    >>> is_array(pa.list_(pa.float32())), is_array(pa.list_(pa.string())), is_array(pa.float32())
    (True, False, False)
    """
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def read_arrays(column: pa.Array, width: int | None, file: str, first_row: int, name: str) -> np.ndarray:
    """Return lists of one length as a matrix, ``(rows, width)``, or raise an error with the first row that has none.

    ``first_row`` rows of the file precede the column; a width of None is that of the first row.
    """
    if not is_array(column.type):
        raise fail(f"every row needs a list of numbers, but the column is of type {column.type}", file, None, name)
    lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    width = max(1, int(lengths[0])) if width is None else width
    if (wrong := lengths != width).any():
        row = int(wrong.argmax())
        got = "none" if lengths[row] < 0 else f"one of {lengths[row]}"
        raise fail(f"every row needs a list of {width} numbers, got {got}", file, first_row + row + 1, name)
    rows = np.asarray(pc.list_flatten(column).to_numpy(zero_copy_only=False)).reshape(-1, width)
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
        good = np.isfinite(rows.astype(np.float32, copy=False)).all(1)
    if not good.all():
        row = int((~good).argmax())
        raise fail("a number in the list is missing, infinite or too large; mend it", file, first_row + row + 1, name)
    return rows
