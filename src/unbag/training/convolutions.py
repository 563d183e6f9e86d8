"""Convolutions of stacked models on a GPU.

Stacked convolutions become one with as many groups of channels as there are replicas, for which a GPU has slow kernels
only. Stacked products are products. Patches of many channels would take too much memory.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

FEW_CHANNELS = 8


class _Products(nn.Conv2d):
    """A convolution as products of its weights with the patches that they see."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what the convolution would."""
        down, right = cast(tuple[int, int], self.padding)
        patches = pad(x, (right, right, down, down))
        for dim, size, step in zip((2, 3), self.kernel_size, self.stride, strict=True):
            patches = patches.unfold(dim, size, step)  # at the end (n, channels, rows, columns, height, width)
        n, _, rows, columns = patches.shape[:4]
        # One product for each image: a single one would add up the slopes of all of them one after the other.
        patches = patches.permute(0, 2, 3, 4, 5, 1).reshape(n, rows * columns, -1)
        weight = self.weight.permute(2, 3, 1, 0).reshape(1, -1, self.out_channels).expand(n, -1, -1)
        found = torch.bmm(patches, weight)  # (n, places, channels)
        if self.bias is not None:
            found = found + self.bias
        return found.view(n, rows, columns, -1).permute(0, 3, 1, 2)


def convolve_by_products(model: nn.Module) -> None:
    """Change how the convolutions of few channels in a model are computed; what they compute stays the same."""
    for part in model.modules():
        if type(part) is nn.Conv2d and part.in_channels <= FEW_CHANNELS and _is_plain(part):
            part.__class__ = _Products


def _is_plain(part: nn.Conv2d) -> bool:
    padded = part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return padded and part.groups == 1 and part.dilation == (1, 1)
