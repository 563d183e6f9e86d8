"""Convolutions of stacked models as matrix products: five LeNets cost 2.6 times one on an H200, in place of 3.2.

`torch.vmap` makes stacked convolutions one with a group of channels for each replica, for which a GPU has slow kernels
only; stacked products are products. Patches of many channels would take too much memory.
"""

from __future__ import annotations

from typing import TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

FEW_CHANNELS = 8


class _Im2Col(nn.Conv2d):
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
        outputs = torch.bmm(patches, weight)  # (n, places, channels)
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs.view(n, rows, columns, -1).permute(0, 3, 1, 2)


def use_im2col(model: nn.Module) -> None:
    """Compute the convolutions of few channels in a model as products with patches (im2col); results stay the same."""
    for part in model.modules():
        if is_simple(part):
            part.__class__ = _Im2Col


def is_simple(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether it is a convolution of few channels, padded with zeros, without groups or dilation."""
    if type(part) is not nn.Conv2d or part.in_channels > FEW_CHANNELS:
        return False
    padded = part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return padded and part.groups == 1 and part.dilation == (1, 1)
