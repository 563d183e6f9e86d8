"""Convolutions that each read all that came before them in their block."""

from __future__ import annotations

from math import gcd
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Norm = Literal["batch", "group"]


class DenseNet(nn.Module):
    """DenseNet of three blocks for small images, with transitions that halve channels and size; Huang et al., 2017.

    Parameters
    ----------
    n_classes
        Outputs.
    depth
        Layers in all: the first, ``(depth - 4) / 3`` in each block, one in each of two transitions, and the last.
    growth
        Channels that each layer of a block adds.
    channels
        1 for grey images, 3 for coloured ones.
    norm
        ``"batch"`` is the published one; it keeps running statistics, so that replicas train one after the other.
        ``"group"`` normalises each image by itself and has none: replicas train at once.

    Examples
    --------
    >>> DenseNet(10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, n_classes: int, depth: int = 22, growth: int = 12, channels: int = 3, norm: Norm = "batch"
    ) -> None:
        super().__init__()
        per_block, rest = divmod(depth - 4, 3)
        if per_block < 1 or rest:
            raise ValueError(f"depth must be 4 plus a multiple of 3, such as 22 or 40, got {depth}")
        width = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range(per_block):
                layers.append(DenseLayer(width, growth, norm))
                width += growth
            if block < 2:
                layers += [*_rectified(width, norm), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
        self.features = nn.Sequential(*layers, *_rectified(width, norm))
        self.output = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)`` for images of shape ``(n, channels, height, width)``."""
        return self.output(self.features(x).mean((-2, -1)))


class DenseLayer(nn.Module):
    """Appends new channels to those that it reads: norm, rectifier and convolution."""

    def __init__(self, width: int, growth: int, norm: Norm) -> None:
        super().__init__()
        self.new = nn.Sequential(*_rectified(width, norm), nn.Conv2d(width, growth, 3, padding=1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return all channels so far, (n, width + growth, height, width)."""
        return torch.cat([x, self.new(x)], 1)


def _rectified(width: int, norm: Norm) -> list[nn.Module]:
    if norm == "batch":
        return [nn.BatchNorm2d(width), nn.ReLU()]
    if norm == "group":
        # Up to eight groups of channels, as many as divide them evenly.
        return [nn.GroupNorm(gcd(8, width), width), nn.ReLU()]
    raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}; got {norm!r}")
