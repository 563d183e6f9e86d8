"""Where rows come from, and what a step makes of them before the model sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unbag._utils.checks import describe

Views = Callable[[Tensor], Tensor]
"""From gathered rows, (n, ...), of all replicas, to the inputs of the step, (n, ...): augmentation, noise, crops."""


@runtime_checkable
class RowSource(Protocol):
    """Rows that need not be in memory; a tensor of all rows is the plain case.

    A source may have ``rows_of_block``, how many neighbouring rows are best read together: the order of an epoch then
    goes by blocks of them, see :mod:`unbag.training.batches`.
    """

    device: torch.device
    dtype: torch.dtype

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of these numbers, (n,), in their order, (n, ...), on the device of the source."""
        ...


Rows = Tensor | RowSource


def gather_rows(X: Rows, rows: Tensor) -> Tensor:
    """Return rows by their numbers, which may have several dimensions.

    Examples
    --------
    >>> gather_rows(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[2, 0]]))
    tensor([[[3.],
             [1.]]])
    """
    if isinstance(X, Tensor):  # on a processor, a fraction of the time of an index with two dimensions
        return X.index_select(0, rows.flatten()).view(*rows.shape, *X.shape[1:])
    gathered = X.gather(rows.flatten())
    if (
        not isinstance(gathered, Tensor)
        or gathered.ndim < 2
        or len(gathered) != rows.numel()
        or gathered.device != rows.device
    ):
        raise ValueError(
            f"gather must return a tensor with a row for each of {rows.numel()} numbers, on {rows.device}; "
            f"got {describe(gathered)}{f' on {gathered.device}' if isinstance(gathered, Tensor) else ''}"
        )
    return gathered.view(*rows.shape, *gathered.shape[1:])


def put_on(X: Rows, device: torch.device | str) -> Rows:
    """Return rows that are on a device when they are read; a source without ``to`` must put them there by itself."""
    if isinstance(X, Tensor) or hasattr(X, "to"):
        return X.to(device)
    if X.device != torch.device(device):
        raise ValueError(f"X puts its rows on {X.device}, but device={str(device)!r}; let both be the same")
    return X


class TakenRows:
    """Some rows of a source, or all: a source, whose rows can also be read part by part like those of a tensor."""

    def __init__(self, source: RowSource, rows: Tensor | None = None) -> None:
        self.source = source
        self.rows = torch.arange(len(source), device=source.device) if rows is None else rows.to(source.device)
        self.device, self.dtype = source.device, source.dtype
        self.shape = (len(self.rows), *row_shape(source))
        self.rows_of_block = getattr(source, "rows_of_block", None)

    def __len__(self) -> int:
        return len(self.rows)

    def gather(self, rows: Tensor) -> Tensor:
        """Return rows by their numbers among the taken ones."""
        return gather_rows(self.source, self.rows[rows])

    def split(self, at_once: int) -> Iterator[Tensor]:
        """Yield the rows in their order, so many at a time."""
        return (gather_rows(self.source, part) for part in self.rows.split(at_once))


def row_shape(X: Rows) -> tuple[int, ...]:
    """Return the shape of one row."""
    if isinstance(X, Tensor):
        return tuple(X.shape[1:])
    return tuple(gather_rows(X, torch.zeros(1, dtype=torch.int64, device=X.device)).shape[1:])


def some_of(numbers: Tensor, most: int) -> Tensor:
    """Return some numbers, at random, in their order; all where these are no more than that."""
    if len(numbers) <= most:
        return numbers
    chosen = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))[:most]
    return numbers[chosen.sort().values.to(numbers.device)]


def make_views(views: Views, gathered: Tensor) -> Tensor:
    """Return the inputs of a step from gathered rows of each replica, (replicas, n, ...)."""
    made = views(gathered.flatten(0, 1))
    if not isinstance(made, Tensor) or made.ndim < 2 or len(made) != gathered.shape[:2].numel():
        raise ValueError(
            f"views must return a tensor with as many rows as it is given, {gathered.shape[:2].numel()}; "
            f"got {describe(made)}"
        )
    return made.view(*gathered.shape[:2], *made.shape[1:])
