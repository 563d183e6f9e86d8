"""Two convolutions and three linear layers."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """LeNet of five layers for square images, with rectifiers and maximum pooling; LeCun et al., 1998.

    Parameters
    ----------
    n_classes
        Outputs.
    channels
        1 for grey images, 3 for coloured ones.
    size
        Height and width of an image, at least 12.

    Examples
    --------
    >>> import torch
    >>> LeNet(10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, n_classes: int, channels: int = 1, size: int = 28) -> None:
        super().__init__()
        side = (size // 2 - 4) // 2  # 5 for 28, 6 for 32
        if side < 1:
            raise ValueError(f"size must be at least 12, got {size}; smaller images suit an MLP")
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),  # (n, 6, size, size)
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),  # (n, 16, size / 2 - 4, size / 2 - 4)
            nn.ReLU(),
            nn.MaxPool2d(2),  # (n, 16, side, side)
        )
        self.linear = nn.Sequential(
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, n_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)`` for images of shape ``(n, channels, size, size)``."""
        return self.linear(self.convolutions(x).flatten(1))
