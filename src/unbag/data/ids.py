"""Ids of groups and of rows, as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import describe, format_indices, is_missing


def number_ids(ids: Any) -> tuple[list[Any], Tensor]:
    """Return the distinct ids, sorted, and for each row the number of its id among them."""
    if not isinstance(ids, Tensor):
        ids = as_array(ids)
    if ids.ndim != 1:
        raise ValueError(f"ids must have one dimension, one id per row; got shape {tuple(ids.shape)}")
    if len(ids) == 0:
        raise ValueError("ids is empty: there are no rows to group")
    missing = torch.tensor([is_missing(value) for value in ids.tolist()])
    if bool(missing.any()):
        rows = format_indices("row", missing)
        raise ValueError(f"ids has no value for {rows}; give each row a group, or leave the row out")
    if isinstance(ids, Tensor):
        distinct, number = torch.unique(ids, return_inverse=True)
        return distinct.tolist(), number
    try:
        unique, inverse = np.unique(ids, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"ids cannot be sorted: {error}; convert them to one type, for example with [str(i) for i in ids]"
        ) from error
    return unique.tolist(), torch.from_numpy(inverse.astype(np.int64))


def as_array(ids: Any) -> np.ndarray:
    """Return ids as an array, without conversion of single ids."""
    if hasattr(ids, "to_pylist"):  # a column of pyarrow, whose arrays of text have no NumPy view
        ids = ids.to_pylist()
    if hasattr(ids, "to_numpy"):  # a column of pandas or polars
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray):
        return ids
    if not isinstance(ids, Iterable):
        raise TypeError(f"ids must hold one id per row, got {describe(ids)}")
    return np.fromiter(ids, dtype=object)  # another type would convert [1, "1"] into two equal strings


def index_of(value: Any) -> list[Any] | None:
    """Return the index of a pandas table or column; None for anything else."""
    index = getattr(value, "index", None)
    return as_array(index).tolist() if hasattr(index, "tolist") else None  # the index of a list is a method


def has_default_index(value: Any) -> bool:
    """Return whether an index is 0, 1, 2, ..., the default of pandas."""
    index = value.index
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None
