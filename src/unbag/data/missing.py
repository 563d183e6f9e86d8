"""Missing values of tables, for models that need numbers: zeros and indicator columns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import torch
from torch import Tensor

from unbag.data.sparse_rows import SparseRows, Table


def find_missing(parts: Iterable[Tensor]) -> Tensor:
    """Return the numbers of the columns with a missing value, from consecutive parts of a table; none for images."""
    flags = [part.isnan().any(0) for part in takewhile(lambda part: part.ndim == 2, parts)]
    return torch.stack(flags).any(0).nonzero().flatten().cpu() if flags else torch.empty(0, dtype=torch.int64)


def fill_missing(X: Table, columns: Tensor) -> Table:
    """Replace missing values by 0, the mean of a scaled column, and append indicator columns.

    Parameters
    ----------
    X
        Scaled rows; rows that are not a table, such as images, keep their shape.
    columns
        Columns that get an indicator: those with missing values in the training data, from :func:`find_missing`.
    """
    if isinstance(X, SparseRows):
        return X.fill_missing(columns)
    missing = X.isnan()
    if not len(columns):  # rows without missing values are not copied; an exported graph cannot depend on values
        return X.masked_fill(missing, 0) if torch.compiler.is_compiling() or bool(missing.any()) else X
    return torch.cat([X.masked_fill(missing, 0), missing[:, columns.to(X.device)].to(X.dtype)], 1)
