"""Columns with a list of numbers in each row, such as embeddings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import fail


def is_array(kind: pa.DataType) -> bool:
    """Whether each row of a column is a list of numbers.

    Examples
    --------
    >>> is_array(pa.list_(pa.float32())), is_array(pa.list_(pa.string())), is_array(pa.float32())
    (True, False, False)
    """
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def read_arrays(column: pa.Array, width: int | None, file: str, first_row: int, name: str) -> np.ndarray:
    """Return lists of one length, without gaps, as a matrix, ``(rows, width)``; or name the first row that is none.

    ``first_row`` rows of the file came before; a width of None is that of the first row.
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
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite in it
        good = np.isfinite(rows.astype(np.float32, copy=False)).all(1)
    if not good.all():
        row = int((~good).argmax())
        raise fail("a number in the list is missing, infinite or too large; mend it", file, first_row + row + 1, name)
    return rows
