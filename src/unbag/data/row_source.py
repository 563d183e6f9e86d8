"""Sources of rows, in memory or elsewhere, and views of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from unbag._utils.checks import describe
from unbag.data.sparse_rows import SparseRows

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
