"""Encoding of pandas, polars and Arrow tables that are passed to an estimator."""

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
from unbag.data.features import Preparation, Tally, describe_tally, feature_problems, find_number_texts, fit_preparation
from unbag.data.groups import Groups
from unbag.data.row_source import SparseRows, gather_rows, select_rows

X_FILE = Path("X")
"""Name of the table in messages; its rows are counted from 1."""


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows of a table, in memory or on disk, which an estimator accepts as X.

    A classifier that is fitted to them uses the same encoding for tables that it predicts.
    """

    rows: Any  # (rows, columns), numbers, with NaN for missing values
    preparation: Preparation

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> EncodedRows:
        """Return selected rows, in memory."""
        take = select_rows if isinstance(self.rows, SparseRows) else gather_rows
        return EncodedRows(take(self.rows, torch.from_numpy(which)), self.preparation)


def read_frame(X: Any) -> Table | None:
    """Convert a pandas, polars or Arrow table; return None for arrays, tensors and lists."""
    if type(X).__name__ == "LazyFrame":
        raise ValueError("X is a polars LazyFrame, whose rows are not computed yet; pass X.collect()")
    shape = getattr(X, "shape", ())
    if not hasattr(X, "__arrow_c_stream__") or len(shape) != 2 or 0 in shape:  # an empty table is an error as an array
        return None
    try:
        if hasattr(X, "iloc"):
            if (repeated := X.columns[X.columns.duplicated()]).size:
                raise ValueError(f"X has more than one column named {repeated[0]!r}; rename all but one")
            data = pa.Table.from_pandas(X, preserve_index=False)
        else:
            data = pa.table(X)
    except (pa.ArrowException, TypeError, OverflowError) as error:  # a column of pandas may hold any objects
        reasons = "; ".join(map(str, error.args))  # the second names the column
        advice = "convert the values of each column to numbers of at most 64 bits, or to text"
        raise ValueError(f"X cannot be read: {reasons}; {advice}") from error
    categorical = tuple(field.name for field in data.schema if pa.types.is_dictionary(field.type))
    return Table(X_FILE, plain_types(data, str(X_FILE)), categorical)


def fit_frame(estimator: Any, X: Any, table: Table, groups: Sequence[Groups]) -> Tensor | SparseRows:
    """Fit the encoding of a table to the rows in groups, and return all rows encoded."""
    validate_data(estimator, X, reset=True, skip_check_array=True)
    problems = (next(feature_problems(table, name), None) for name in table.names)
    if errors := list(islice(filter(None, problems), NAMED)):
        raise ValueError("; ".join(map(str, errors)))
    for name in table.names:
        keep = f"make it categorical with X[{name!r}].astype('category')"
        if name not in table.categorical and (problem := find_number_texts(table, name, keep)) is not None:
            warnings.warn(str(problem), UnbagWarning, stacklevel=4)
    members = np.unique(np.concatenate([g.members.numpy(force=True) for g in groups]))
    estimator.preparation_ = fit_preparation(table, table.names, members)
    rows = estimator.preparation_.encode_rows(table)
    estimator.input_shape_ = tuple(rows.shape[1:])
    return rows


def encode_frame(estimator: Any, X: Any) -> Tensor | SparseRows:
    """Encode new rows; an array is a table with the columns of fit."""
    names, tally = estimator.preparation_.names, Tally()
    if (table := read_frame(X)) is None:
        array = validate_data(estimator, X, reset=False, dtype=None, ensure_all_finite=False)
        data = plain_types(pa.table([pa.array(column) for column in array.T], names=names), str(X_FILE))
    else:
        validate_data(estimator, X, reset=False, skip_check_array=True)
        data = table.data.rename_columns(names)  # scikit-learn has accepted other names, by order
    rows = estimator.preparation_.encode_rows(Table(X_FILE, data), tally)
    for problem in describe_tally(tally, str(X_FILE)):
        warnings.warn(str(problem), UnbagWarning, stacklevel=5)
    return rows
