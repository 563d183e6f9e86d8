"""Tables of pandas, polars and Arrow, turned into numbers by what fit has learned of their columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from unbag._utils.findings import UnbagWarning
from unbag._utils.problems import NAMED
from unbag.data.columns import Table, plain_types
from unbag.data.features import Preparation, Tally, feature_problems, find_number_texts, fit_preparation
from unbag.data.groups import Groups
from unbag.data.row_source import gather_rows

X_FILE = Path("X")
"""What a table is called in sentences; its rows are counted from 1."""


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows of a table that a preparation has turned into numbers, in memory or on disk; the estimator accepts them.

    Parameters
    ----------
    rows
        The numbers, shape ``(rows, columns)``; NaN where one is missing.
    preparation
        The encoding. A classifier that was fitted to encoded rows predicts tables by it.
    """

    rows: Any
    preparation: Preparation

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> EncodedRows:
        """Return some of the rows, in memory."""
        return EncodedRows(gather_rows(self.rows, torch.from_numpy(which)), self.preparation)


@dataclass(frozen=True, eq=False)
class Frame(Table):
    """A table of pandas, polars or Arrow, and its columns of a categorical type."""

    categorical: frozenset[str]


def read_frame(X: Any) -> Frame | None:
    """Return a table of pandas, polars or Arrow with columns of plain types; None for arrays, tensors and lists."""
    if type(X).__name__ == "LazyFrame":
        raise ValueError("X is a polars LazyFrame, which has no rows yet; pass X.collect()")
    shape = getattr(X, "shape", ())
    if not hasattr(X, "__arrow_c_stream__") or len(shape) != 2 or 0 in shape:  # an empty table is refused as an array
        return None
    try:
        if hasattr(X, "iloc"):
            if (again := X.columns[X.columns.duplicated()]).size:
                raise ValueError(f"X has more than one column named {again[0]!r}; rename all but one")
            data = pa.Table.from_pandas(X, preserve_index=False)
        else:
            data = pa.table(X)
    except (pa.ArrowException, TypeError, OverflowError) as error:  # in pandas, a column may hold anything
        raise ValueError(_describe_unreadable(X, error)) from error
    categorical = {field.name for field in data.schema if pa.types.is_dictionary(field.type)}
    return Frame(X_FILE, plain_types(data, str(X_FILE)), frozenset(categorical))


def _describe_unreadable(X: Any, error: Exception) -> str:
    """Name the column that Arrow cannot read, and the types of its values."""
    for place, name in enumerate(X.columns):
        values = X.iloc[:, place]
        try:
            pa.Array.from_pandas(values)
        except (pa.ArrowException, TypeError, OverflowError):
            kinds = ", ".join(sorted({type(value).__name__ for value in values}))
            advice = "make all of them numbers of at most 64 bits, or all text"
            return f"the values of column {name!r} of X cannot be read together: they are of type {kinds}; {advice}"
    return f"X cannot be read: {error}; make every column one of numbers, or of text"


def fit_frame(estimator: Any, X: Any, table: Frame, groups: Sequence[Groups], *, checked: bool) -> Tensor:
    """Learn from the rows in groups how to turn columns into numbers, and return all rows as such.

    Columns that cannot be learned from are refused, unless they are checked.
    """
    validate_data(estimator, X, reset=True, skip_check_array=True)
    firsts = (next(feature_problems(table, name), None) for name in ([] if checked else table.names))
    if errors := list(islice(filter(None, firsts), NAMED)):
        raise ValueError("; ".join(map(str, errors)))
    for name in table.names if not checked else []:
        keep = f"make it categorical, as X[{name!r}].astype('category') does"
        if name not in table.categorical and (problem := find_number_texts(table, name, keep)) is not None:
            warnings.warn(str(problem), UnbagWarning, stacklevel=4)
    members = np.unique(np.concatenate([one.members.numpy(force=True) for one in groups]))
    estimator.preparation_ = fit_preparation(table, table.names, members)
    rows = torch.from_numpy(estimator.preparation_.encode(table))
    estimator.input_shape_ = tuple(rows.shape[1:])
    return rows


def encode_frame(estimator: Any, X: Any) -> Tensor:
    """Return new rows as numbers; an array is taken for a table with the columns of fit."""
    names, tally = estimator.preparation_.names, Tally()
    if (table := read_frame(X)) is None:
        array = validate_data(estimator, X, reset=False, dtype=None, ensure_all_finite=False)
        data = plain_types(pa.table([pa.array(column) for column in array.T], names=names), str(X_FILE))
    else:
        validate_data(estimator, X, reset=False, skip_check_array=True)
        data = table.data.rename_columns(names)  # where scikit-learn lets other names pass, it goes by the order
    rows = torch.from_numpy(estimator.preparation_.encode(Table(X_FILE, data), tally))
    for problem in tally.as_problems(str(X_FILE)):
        warnings.warn(str(problem), UnbagWarning, stacklevel=5)
    return rows
