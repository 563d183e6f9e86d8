"""The smallest kernel, to see whether kernels work."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_one(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def add_one(x: Tensor) -> Tensor:
    """Add one to each of up to 16 numbers, in place."""
    _add_one[(1,)](x, len(x), BLOCK=16)
    return x
