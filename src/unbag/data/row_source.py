"""Rows in memory, sparse or elsewhere; views of rows; missing values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array, hstack
from torch import Tensor

from unbag._utils.checks import describe

Views = Callable[[Tensor], Tensor]
"""From the rows of a step, ``(n, ...)``, of all replicas, to the inputs of the model, ``(n, ...)``: augmentation."""


@runtime_checkable
class RowSource(Protocol):
    """Rows that need not be in memory; a tensor of all rows is the simplest case.

    A source may have ``rows_of_block``, the number of neighbouring rows that are best read together: an epoch then
    visits rows by blocks, see :mod:`unbag.training.batches`.
    """

    device: torch.device
    dtype: torch.dtype

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows by their numbers, ``(n,)``, in this order, ``(n, ...)``, on the device of the source."""
        ...


Rows = Tensor | RowSource


def gather_rows(X: Rows, rows: Tensor) -> Tensor:
    """Return rows by their numbers, which may have several dimensions."""
    if isinstance(X, Tensor):  # on a CPU several times as fast as an index with two dimensions
        return X.index_select(0, rows.flatten()).view(*rows.shape, *X.shape[1:])
    gathered = X.gather(rows.flatten())
    is_tensor = isinstance(gathered, Tensor)
    if not is_tensor or gathered.ndim < 2 or len(gathered) != rows.numel() or gathered.device != rows.device:
        raise ValueError(
            f"gather must return a tensor with a row for each of {rows.numel()} numbers, on {rows.device}; "
            f"got {describe(gathered)}{f' on {gathered.device}' if is_tensor else ''}"
        )
    return gathered.view(*rows.shape, *gathered.shape[1:])


def rows_on(X: Rows, device: torch.device | str) -> Rows:
    """Return rows that are on a device when they are read; a source without ``to`` must be on it."""
    if isinstance(X, Tensor) or hasattr(X, "to"):
        return X.to(device)
    if X.device != torch.device(device):
        raise ValueError(f"X returns rows on {X.device}, but device={str(device)!r}; use the same device for both")
    return X


class RowSubset:
    """Some or all rows of a source, perhaps transformed when they are read, in consecutive parts like a tensor."""

    def __init__(
        self, source: RowSource, rows: Tensor | None = None, function: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.source, self.function, self.device = source, function, source.device
        self.rows = torch.arange(len(source), device=source.device) if rows is None else rows.to(source.device)
        self.dtype = source.dtype if function is None else torch.float32
        self.shape = (len(self.rows), *row_shape(self))
        self.rows_of_block = getattr(source, "rows_of_block", None)

    def __len__(self) -> int:
        return len(self.rows)

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows by their numbers in the subset."""
        gathered = gather_rows(self.source, self.rows[rows])
        return gathered if self.function is None else self.function(gathered)

    def split(self, size: int) -> Iterator[Tensor]:
        """Yield consecutive parts of the rows."""
        return (self.gather(part) for part in torch.arange(len(self), device=self.device).split(size))


def select_rows(X: Rows, rows: Tensor) -> Tensor | SparseRows | RowSubset:
    """Return some rows; those of a source outside of memory are read later."""
    if isinstance(X, SparseRows):
        return X.take(rows)
    return gather_rows(X, rows) if isinstance(X, Tensor) else RowSubset(X, rows)


def transform_rows(X: Rows, function: Callable[[Any], Any]) -> Rows:
    """Apply a function to rows, to those of a source outside of memory when they are read."""
    return function(X) if isinstance(X, Tensor | SparseRows) else RowSubset(X, function=function)


def row_shape(X: Rows) -> tuple[int, ...]:
    """Return the shape of a row."""
    if isinstance(X, SparseRows):
        return X.shape[1:]
    first = X[:1] if isinstance(X, Tensor) else gather_rows(X, torch.zeros(1, dtype=torch.int64, device=X.device))
    return tuple(first.shape[1:])


def make_views(views: Views, gathered: Tensor) -> Tensor:
    """Return the inputs of a step from the rows of each replica, shape ``(replicas, n, ...)``."""
    inputs, n = views(gathered.flatten(0, 1)), gathered.shape[:2].numel()
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or len(inputs) != n:
        raise ValueError(f"views must return a tensor with as many rows as its input, {n}; got {describe(inputs)}")
    return inputs.view(*gathered.shape[:2], *inputs.shape[1:])


Table = TypeVar("Table", Tensor, "SparseRows")


class SparseRows:
    """Rows in memory of which only some values are stored; the others are zero.

    It is a :class:`unbag.training.RowSource` whose rows become dense when they are gathered. NaN marks a missing value.
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
        matrix, shifts, factors = self.matrix, shift.numpy(), factor.numpy()
        if len(centred := np.flatnonzero(shifts)):  # columns whose zeros become other values, all of which are stored
            stored, rows = matrix.tocoo(), np.arange(len(self)).repeat(len(centred))
            data = np.append(stored.data, np.zeros(len(rows), matrix.dtype))
            places = np.append(stored.row, rows), np.append(stored.col, np.tile(centred, len(self)))
            matrix = csr_array((data, places), shape=self.shape)
        values = ((matrix.data - shifts[matrix.indices]) * factors[matrix.indices]).astype(np.float32)
        return SparseRows(csr_array((values.clip(-limit, limit), matrix.indices, matrix.indptr), shape=self.shape))

    def fill_missing(self, columns: Tensor) -> SparseRows:
        """Replace NaN by 0, and append an indicator for each of the columns with these numbers."""
        data, places, missing = self.matrix.data, (self.matrix.indices, self.matrix.indptr), np.isnan(self.matrix.data)
        filled = csr_array((np.where(missing, 0, data), *places), shape=self.shape)
        if not len(columns):
            return SparseRows(filled)
        flags = csr_array((missing.astype(data.dtype), *places), shape=self.shape)[:, columns.numpy()]
        flags.eliminate_zeros()
        return SparseRows(hstack([filled, flags], format="csr"))


class SparseColumns:
    """A transposed matrix, for products."""

    def __init__(self, matrix: csc_array) -> None:
        self.matrix = matrix

    def __matmul__(self, weight: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix @ weight.numpy())


def find_missing(parts: Iterable[Tensor]) -> Tensor:
    """Return the numbers of the columns with a missing value, from consecutive parts of a table; none for images."""
    flags = [part.isnan().any(0) for part in takewhile(lambda part: part.ndim == 2, parts)]
    return torch.stack(flags).any(0).nonzero().flatten().cpu() if flags else torch.empty(0, dtype=torch.int64)


def fill_missing(X: Table, columns: Tensor) -> Table:
    """Replace missing values by 0, the mean of a scaled column, and append indicator columns.

    ``columns`` are those with missing values in the training data, from :func:`find_missing`. Images keep their shape.
    """
    if isinstance(X, SparseRows):
        return X.fill_missing(columns)
    missing = X.isnan()
    if not len(columns):  # rows without missing values are not copied; an exported graph cannot depend on values
        return X.masked_fill(missing, 0) if torch.compiler.is_compiling() or bool(missing.any()) else X
    return torch.cat([X.masked_fill(missing, 0), missing[:, columns.to(X.device)].to(X.dtype)], 1)
