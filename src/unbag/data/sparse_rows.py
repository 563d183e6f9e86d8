"""Rows of a table most of whose values are zero: indicators of many categories, counts of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array, hstack
from torch import Tensor

Table = TypeVar("Table", Tensor, "SparseRows")


class SparseRows:
    """Rows in memory of which only some values are stored; the others are zero.

    It is a :class:`unbag.training.RowSource` whose rows become dense when they are gathered.

    Parameters
    ----------
    matrix
        Matrix of ``scipy.sparse``, ``(rows, columns)``, of floats. NaN marks a missing value.
    """

    device = torch.device("cpu")
    ndim = 2

    def __init__(self, matrix: csr_array) -> None:
        self.matrix = csr_array(matrix)
        self.shape = self.matrix.shape
        self.dtype = torch.from_numpy(self.matrix.data[:0]).dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __matmul__(self, weight: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix @ weight.numpy())

    @property
    def T(self) -> SparseColumns:  # noqa: N802 (as of arrays)
        """Return the transposed matrix."""
        return SparseColumns(self.matrix.T)

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows by their numbers, shape ``(n,)``, as a dense table, shape ``(n, columns)``."""
        return torch.from_numpy(self.matrix[rows.numpy()].toarray())

    def take(self, rows: Tensor) -> SparseRows:
        """Return rows by their numbers."""
        return SparseRows(self.matrix[rows.numpy()])

    def split(self, size: int) -> Iterator[SparseRows]:
        """Yield consecutive parts of the rows."""
        return (SparseRows(self.matrix[start : start + size]) for start in range(0, len(self), size))

    def flag_columns(self, condition: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """Return a flag for each column that has a stored value with a condition, shape ``(columns,)``."""
        flags = torch.zeros(self.shape[1], dtype=torch.bool)
        flags[torch.from_numpy(self.matrix.indices[condition(self.matrix.data)]).long()] = True
        return flags

    def moments(self, *, without_zeros: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return number, mean and variance of the values of each column that are not NaN, perhaps without zeros."""
        column, values, width = self.matrix.indices, self.matrix.data.astype(np.float64), self.shape[1]
        used = values != 0 if without_zeros else np.ones(len(values), dtype=bool)
        known = ~np.isnan(values)
        n_stored, n_unknown = (np.bincount(column[which], minlength=width) for which in (used & known, ~known))
        n = n_stored if without_zeros else len(self) - n_unknown
        column, values = column[used & known], values[used & known]
        mean = np.bincount(column, values, width) / np.maximum(n, 1)
        squares = np.bincount(column, (values - mean[column]) ** 2, width) + (n - n_stored) * mean**2
        return n, mean, squares / np.maximum(n, 1)

    def scale(self, shift: Tensor, factor: Tensor, limit: float) -> SparseRows:
        """Return ``(x - shift) * factor`` in float32, between -limit and limit."""
        matrix, centred = self.matrix, np.flatnonzero(shift.numpy())
        is_centred = np.zeros(self.shape[1], dtype=bool)
        is_centred[centred] = True
        if is_centred[matrix.indices].sum() < len(centred) * len(self):
            everywhere = np.tile(centred, len(self)), np.arange(len(self) + 1) * len(centred)
            zeros = csr_array((np.zeros(len(everywhere[0]), matrix.dtype), *everywhere), shape=self.shape)
            matrix = _add_stored(matrix, zeros)
        values = (matrix.data - shift.numpy()[matrix.indices]) * factor.numpy()[matrix.indices]
        values = values.astype(np.float32).clip(-limit, limit)
        return SparseRows(csr_array((values, matrix.indices, matrix.indptr), shape=self.shape))

    def fill_missing(self, columns: Tensor) -> SparseRows:
        """Replace NaN by 0, and append an indicator for each of the columns with these numbers."""
        missing = np.isnan(self.matrix.data)
        filled = csr_array(
            (np.where(missing, 0, self.matrix.data), self.matrix.indices, self.matrix.indptr), self.shape
        )
        place = np.full(self.shape[1], -1)
        place[columns.numpy()] = np.arange(len(columns))
        entries = np.flatnonzero(missing & (place[self.matrix.indices] >= 0))
        rows = np.searchsorted(self.matrix.indptr, entries, "right") - 1
        ones = np.ones(len(entries), filled.dtype)
        flags = csr_array((ones, (rows, place[self.matrix.indices[entries]])), (len(self), len(columns)))
        return SparseRows(hstack([filled, flags], format="csr") if len(columns) else filled)


class SparseColumns:
    """A transposed matrix, for products."""

    def __init__(self, matrix: csc_array) -> None:
        self.matrix = matrix

    def __matmul__(self, weight: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix @ weight.numpy())


def _add_stored(first: csr_array, second: csr_array) -> csr_array:
    """Return the sum of two matrices, with zeros that are stored."""
    first, second = first.tocoo(), second.tocoo()
    values, rows, columns = (
        np.concatenate([getattr(matrix, name) for matrix in (first, second)]) for name in ("data", "row", "col")
    )
    matrix = csr_array((values, (rows, columns)), shape=first.shape)
    matrix.sum_duplicates()
    return matrix
