"""Tensors that are computed part by part."""

from collections.abc import Iterable

from torch import Tensor


def join(parts: Iterable[Tensor], length: int, dim: int = 0) -> Tensor:
    """Concatenate at least one part as they come, along a dimension of known length.

    A list for ``torch.cat`` would keep many small tensors between the large temporary ones and so fragment memory.
    """
    whole, start = None, 0
    for part in parts:
        if whole is None:
            whole = part.new_empty([length if d == dim % part.ndim else n for d, n in enumerate(part.shape)])
        whole.narrow(dim, start, part.shape[dim]).copy_(part)
        start += part.shape[dim]
    assert whole is not None and start == length  # noqa: PT018 (one invariant)
    return whole
