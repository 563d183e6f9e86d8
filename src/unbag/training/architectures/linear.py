"""One linear layer."""

from __future__ import annotations

from torch import Tensor, nn


class Linear(nn.Module):
    """A linear classifier; images are read as flat rows.

    Examples
    --------
    >>> import torch
    >>> Linear(4, 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(n_features, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)``."""
        return self.output(x.flatten(1))
