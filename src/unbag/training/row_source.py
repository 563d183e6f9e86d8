"""Where rows come from, and what a step makes of them before the model sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unbag.checks import describe

Views = Callable[[Tensor], Tensor]
"""From gathered rows, (n, ...), of all replicas, to the inputs of the step, (n, ...): augmentation, noise, crops."""


@runtime_checkable
class RowSource(Protocol):
    """Rows that need not be in memory; a tensor of all rows is the plain case."""

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
    found = X.gather(rows.flatten())
    if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != rows.numel() or found.device != rows.device:
        raise ValueError(
            f"gather must return a tensor with a row for each of {rows.numel()} numbers, on {rows.device}; "
            f"got {describe(found)}{f' on {found.device}' if isinstance(found, Tensor) else ''}"
        )
    return found.view(*rows.shape, *found.shape[1:])


def make_views(views: Views, gathered: Tensor) -> Tensor:
    """Return the inputs of a step from gathered rows of each replica, (replicas, n, ...)."""
    found = views(gathered.flatten(0, 1))
    if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != gathered.shape[:2].numel():
        raise ValueError(
            f"views must return a tensor with as many rows as it is given, {gathered.shape[:2].numel()}; "
            f"got {describe(found)}"
        )
    return found.view(*gathered.shape[:2], *found.shape[1:])
