"""Networks for images, which the library finds by name: the entry points ``unbag.models`` of this distribution."""

from __future__ import annotations

from torch import nn

from unbag_experiments.networks.densenet import DenseNet as DenseNet
from unbag_experiments.networks.lenet import LeNet as LeNet


def lenet(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return a LeNet for square images of shape ``(height, width)`` or ``(channels, height, width)``."""
    channels, height, width = _image_shape("lenet", shape, least=12)
    if height != width:
        raise ValueError(f"model 'lenet' reads square images, got rows of shape {shape}; crop or pad them")
    return _with_channel(LeNet(n_classes, channels, height), shape)


def densenet(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Return a DenseNet for images of shape ``(height, width)`` or ``(channels, height, width)``."""
    channels, _, _ = _image_shape("densenet", shape, least=4)
    return _with_channel(DenseNet(n_classes, channels=channels), shape)


def _image_shape(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"model {name!r} reads images: rows of shape (height, width) or (channels, height, width); "
            f"got rows of shape {shape}; reshape X, for example X.reshape(len(X), 1, 28, 28), or use 'mlp'"
        )
    channels, height, width = (1, *shape)[-3:]
    if min(height, width) < least:
        raise ValueError(
            f"model {name!r} reads images of at least {least} x {least} pixels, channels first; "
            f"got rows of shape {shape}; transpose X if its channels come last, or use 'mlp'"
        )
    return channels, height, width


def _with_channel(net: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    # (n, height, width) to (n, 1, height, width)
    return net if len(shape) == 3 else nn.Sequential(nn.Unflatten(1, (1, shape[0])), net)
