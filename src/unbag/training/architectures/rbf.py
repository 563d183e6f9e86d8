"""Gaussian kernels around centres, and a linear layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RBF(nn.Module):
    """A radial basis function network; images are read as flat rows.

    Parameters
    ----------
    n_features
        Columns of the table, or pixels of an image times its channels.
    n_classes
        Outputs.
    units
        Kernels ``exp(-width |x - centre|^2)``.

    Examples
    --------
    >>> RBF(4, 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int, units: int = 256) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(units, n_features))
        self.width = nn.Parameter(torch.full((1,), 1 / n_features))
        self.output = nn.Linear(units, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)``."""
        return self.output(gaussian_kernel(x.flatten(1), self.centres, self.width))


def gaussian_kernel(rows: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """Return ``exp(-width |row - centre|^2)``, ``(rows, centres)``."""
    squares = rows.square().sum(1)[:, None] + centres.square().sum(1) - 2 * rows @ centres.T
    return (-width * squares.clamp_min(0)).exp()
