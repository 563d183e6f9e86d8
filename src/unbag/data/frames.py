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
from unbag.data.features import Preparation, Tally, feature_problems, fit_preparation
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, gather_rows

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

    rows: Rows
    preparation: Preparation

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> EncodedRows:
        """Return some of the rows, in memory."""
        return EncodedRows(gather_rows(self.rows, torch.from_numpy(which)), self.preparation)


def read_frame(X: Any) -> Table | None:
    """Return a table of pandas, polars or Arrow with columns of plain types; None for arrays, tensors and lists."""
    shape = getattr(X, "shape", ())
    if not hasattr(X, "__arrow_c_stream__") or len(shape) != 2 or 0 in shape:  # an empty table is refused as an array
        return None
    try:
        data = pa.Table.from_pandas(X, preserve_index=False) if hasattr(X, "iloc") else pa.table(X)
    except (pa.ArrowException, ValueError, TypeError) as error:  # in pandas, a column may hold anything
        raise ValueError(
            f"X holds a column that cannot be read: {'; '.join(map(str, error.args))}; make all of its values numbers, "
            "or all text"
        ) from error
    return Table(X_FILE, plain_types(data, str(X_FILE)))


def fit_frame(estimator: Any, X: Any, table: Table, groups: Sequence[Groups], *, checked: bool) -> Tensor:
    """Learn from the rows in groups how to turn columns into numbers, and return all rows as such.

    Columns that cannot be learned from are refused, unless they are checked.
    """
    validate_data(estimator, X, reset=True, skip_check_array=True)
    firsts = (next(feature_problems(table, name), None) for name in ([] if checked else table.names))
    if errors := list(islice(filter(None, firsts), NAMED)):
        raise ValueError("; ".join(map(str, errors)))
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
