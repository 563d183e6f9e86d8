"""Missing values of tables, for models that need numbers: zeros and indicator columns."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def find_missing(parts: Iterable[Tensor]) -> Tensor:
    """Return the numbers of the columns with a missing value, from consecutive parts of a table.

    Examples
    --------
    >>> find_missing([torch.tensor([[1.0, float("nan")], [0.0, 2.0]])])
    tensor([1])
    """
    found: Tensor | None = None
    for part in parts:
        if part.ndim != 2:
            return torch.empty(0, dtype=torch.int64)
        here = part.isnan().any(0)
        found = here if found is None else found | here
    return torch.empty(0, dtype=torch.int64) if found is None else found.nonzero().flatten().cpu()


def fill_missing(X: Tensor, columns: Tensor) -> Tensor:
    """Replace missing values by 0, the mean of a scaled column, and append an indicator for each of some columns.

    Parameters
    ----------
    X
        Scaled rows; rows that are not a table, such as images, keep their shape.
    columns
        Numbers of the columns that had missing values in the training data, from :func:`find_missing`.

    Examples
    --------
    >>> fill_missing(torch.tensor([[1.0, float("nan")], [0.0, 2.0]]), torch.tensor([1]))
    tensor([[1., 0., 1.],
            [0., 2., 0.]])
    """
    missing = X.isnan()
    if not len(columns):
        return X.masked_fill(missing, 0) if bool(missing.any()) else X
    return torch.cat([X.masked_fill(missing, 0), missing[:, columns.to(X.device)].to(X.dtype)], 1)
