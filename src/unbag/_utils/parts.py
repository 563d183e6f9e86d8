"""Tables that are computed part by part."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


def join(parts: Iterable[Tensor], length: int, dim: int = 0) -> Tensor:
    """Put parts together as they come, along a dimension of a known length; there is at least one.

    A list for ``torch.cat`` would hold many small tensors in memory, between the large ones that come and go on the way
    to each: the space that these leave could not be used again as a whole.

    Examples
    --------
    >>> import torch
    >>> join((torch.full((2,), number) for number in range(3)), 6)
    tensor([0, 0, 1, 1, 2, 2])
    """
    whole, start = None, 0
    for part in parts:
        if whole is None:
            shape = list(part.shape)
            shape[dim] = length
            whole = part.new_empty(shape)
        whole.narrow(dim, start, part.shape[dim]).copy_(part)
        start += part.shape[dim]
    assert whole is not None
    assert start == length
    return whole
