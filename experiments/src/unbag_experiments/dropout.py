"""Dropout whose masks follow from a seed and the number of the step, whatever else draws random numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
"""Odd numbers of 64 bits, signed as torch has them; those of SplitMix64."""


class ColumnDropout(nn.Module):
    """Set columns of each row to zero at random while a model learns, and scale up those that stay.

    A mask is a hash of the seed, of how often the module has been used, and of the row's and the column's number.
    Seed and count are buffers, so that replicas that are trained at once have their own, one that is trained alone
    draws what it draws beside others, and a run that goes on from a checkpoint goes on with its masks.

    Parameters
    ----------
    p
        The share of columns that is left out, at least 0 and less than 1.
    seed
        Of the masks.

    Examples
    --------
    >>> ColumnDropout(0.25, seed=1)(torch.ones(2, 8))
    tensor([[1.3333, 0.0000, 1.3333, 1.3333, 1.3333, 1.3333, 1.3333, 1.3333],
            [1.3333, 1.3333, 1.3333, 1.3333, 1.3333, 0.0000, 1.3333, 1.3333]])
    """

    seed: Tensor
    step: Tensor

    def __init__(self, p: float, seed: int) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must be a number of at least 0 and less than 1, got {p!r}")
        self.p = p
        self.register_buffer("seed", torch.tensor(seed))
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows, (n, d), without some of their columns; as they are where the module does not learn."""
        if not self.training or self.p == 0:
            return x
        rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
        of_rows = _mix(_mix(_mix(self.seed) + self.step) + rows)  # (n,)
        drawn = of_rows[:, None] ^ _mix(columns + 2**32)  # two mixed numbers; once more, and bits depend on all of both
        drawn = drawn * MULTIPLIERS[0]
        drawn = (drawn ^ (drawn >> 32)) * MULTIPLIERS[1]  # as likely any number of 64 bits as any other
        self.step.add_(1)
        left_out = drawn < round((self.p - 0.5) * 2**64)
        return (x / (1 - self.p)).masked_fill(left_out, 0.0)

    def extra_repr(self) -> str:
        """Say what the constructor was told."""
        return f"p={self.p}, seed={self.seed.tolist()}"


def _mix(x: Tensor) -> Tensor:
    """Return a whole number in which every bit depends on every bit of another; one for each, of 64 bits."""
    x = (x ^ _shift(x, 30)) * MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Return a number without its last bits, zeros in front."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
