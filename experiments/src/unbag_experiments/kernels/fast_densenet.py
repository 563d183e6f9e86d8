"""The DenseNet of the experiments, trained in bfloat16 by kernels of our own."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from unbag_experiments.kernels.dense_block import dense_block
from unbag_experiments.kernels.rectify_and_pool import rectify_and_pool
from unbag_experiments.networks.densenet import DenseLayer, DenseNet


class FastDenseNet(DenseNet):
    """A `DenseNet` with batch norm whose blocks are trained by few kernels; parameters and results are the same."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)``; in evaluation, or full precision, as any DenseNet does."""
        height, width = x.shape[-2:]
        suited = height == width and height % 4 == 0 and torch.is_autocast_enabled(x.device.type)
        if not (self.training and suited):
            return super().forward(x)
        first, *parts = self.features
        x = first(x)
        block: list[DenseLayer] = []
        for part in parts:
            if isinstance(part, DenseLayer):
                block.append(part)
            elif isinstance(part, nn.BatchNorm2d):  # ends the block
                xhat = _run(block, part, x)
                block = []
                size = height if part is self.features[-2] else 2
                x = rectify_and_pool(xhat, part.weight, part.bias, size)  # (n, channels, height, width)
                height //= size
            elif isinstance(part, nn.Conv2d):
                pixels = linear(x.permute(0, 2, 3, 1), part.weight.flatten(1))
                x = pixels.permute(0, 3, 1, 2)
        return self.output(x.flatten(1))


def _run(block: list[DenseLayer], end: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Return the normalised channels of a block, and have its norms remember their statistics."""
    norms = [*(cast(nn.BatchNorm2d, layer.new[0]) for layer in block), end]
    xhat, mean, variance = dense_block(
        x,
        [cast(nn.Conv2d, layer.new[2]).weight for layer in block],
        [norm.weight for norm in norms[:-1]],
        [norm.bias for norm in norms[:-1]],
        end.eps,
    )
    n = xhat.numel() // xhat.shape[1]
    with torch.no_grad():
        spread = variance * (n / (n - 1))
        widths = [norm.num_features for norm in norms]
        for kept, seen in (("running_mean", mean), ("running_var", spread)):
            torch._foreach_lerp_(
                [getattr(norm, kept) for norm in norms], [seen[:w] for w in widths], cast(float, end.momentum)
            )
        torch._foreach_add_([cast(Tensor, norm.num_batches_tracked) for norm in norms], 1)
    return xhat


def use_fast_densenet(model: nn.Module) -> bool:
    """Have the DenseNets with batch norm in a model run by these kernels; say whether there were any."""
    densenets = [part for part in model.modules() if type(part) is DenseNet and _is_plain(part.features[-2])]
    for part in densenets:
        part.__class__ = FastDenseNet
    return bool(densenets)


def _is_plain(norm: nn.Module) -> bool:
    """Whether it is a batch norm whose statistics fade; without momentum they are means of all batches."""
    return isinstance(norm, nn.BatchNorm2d) and norm.momentum is not None
