"""Convolutions on a GPU: which are computed otherwise than torch does; what they compute stays the same.

Stacked convolutions become one with as many groups of channels as there are replicas, for which a GPU has slow kernels
only. Where a rectifier and a pooling follow, all three are one kernel of our own; elsewhere the convolution becomes a
product, since stacked products are products. Patches of many channels would take too much memory. A single DenseNet in
half precision has kernels of our own too.
"""

from __future__ import annotations

from typing import TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unbag import gpu

FEW_CHANNELS = 8
MOST_OUTPUTS = 32


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
        if _is_simple(part):
            part.__class__ = _Products


def run_dense_blocks_fast(model: nn.Module) -> bool:
    """Have DenseNets with batch norm trained by kernels of our own, where these work; say if there are any."""
    if not gpu.available():
        return False
    from unbag.gpu.fast_densenet import run_blocks_fast  # noqa: PLC0415  # not everyone has triton

    return run_blocks_fast(model)


def join_pooling(model: nn.Module) -> None:
    """Let convolutions of few channels do the rectifier and the pooling that follow them, where kernels work."""
    if not gpu.available():
        return
    from unbag.gpu.convolve_and_pool import ConvolveAndPool  # noqa: PLC0415  # not everyone has triton

    for layers in [part for part in model.modules() if isinstance(part, nn.Sequential)]:
        parts = list(layers)
        for place, (convolution, rectifier, pooling) in enumerate(zip(parts, parts[1:], parts[2:], strict=False)):
            if _can_be_joined(convolution) and type(rectifier) is nn.ReLU and _is_two_by_two(pooling):
                convolution.__class__ = ConvolveAndPool
                layers[place + 1], layers[place + 2] = nn.Identity(), nn.Identity()


def _can_be_joined(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    if not _is_simple(part) or part.bias is None or part.out_channels > MOST_OUTPUTS:
        return False
    same_both_ways = part.kernel_size[0] == part.kernel_size[1] and part.padding[0] == part.padding[1]
    return same_both_ways and part.stride == (1, 1)


def _is_simple(part: nn.Module) -> TypeGuard[nn.Conv2d]:
    if type(part) is not nn.Conv2d or part.in_channels > FEW_CHANNELS:
        return False
    padded = part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return padded and part.groups == 1 and part.dilation == (1, 1)


def _is_two_by_two(part: nn.Module) -> bool:
    if type(part) is not nn.MaxPool2d:
        return False
    sizes = {part.kernel_size, part.stride} <= {2, (2, 2)}
    return sizes and part.padding == 0 and part.dilation == 1 and not part.ceil_mode and not part.return_indices
