"""What ends a dense block: scale, shift, rectifier and mean pooling in one kernel each way.

The network has a convolution of one pixel between rectifier and pooling. It is linear and sees no neighbours, so it can
as well come after the pooling, where there are a quarter as many pixels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_PLACES = 32
"""Pixels of one turn of the backward kernel."""
_PROGRAMS = 528
"""At most as many programs of the backward kernel; each stores its sums for the slopes of scale and shift."""


@triton.jit
def _forward(
    xhat,
    scale,
    shift,
    pooled,
    n_pixels,
    STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIZE: tl.constexpr,
    PIXELS: tl.constexpr,
    WIDE: tl.constexpr,
):
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.arange(0, WIDE)[None, :]
    real = (pixel < n_pixels)[:, None] & (channel < CHANNELS)
    scales = tl.load(scale + channel, mask=channel < CHANNELS, other=0.0)
    shifts = tl.load(shift + channel, mask=channel < CHANNELS, other=0.0)
    total = tl.zeros((PIXELS, WIDE), dtype=tl.float32)
    for offset in range(SIZE * SIZE):
        row = pixel // COLUMNS * SIZE + offset // SIZE  # images lie below each other
        place = (row * COLUMNS + pixel % COLUMNS) * SIZE + offset % SIZE
        seen = tl.load(xhat + place[:, None] * STRIDE + channel, mask=real, other=0.0).to(tl.float32)
        total += tl.maximum(seen * scales + shifts, 0.0)
    mean = total / (SIZE * SIZE)
    tl.store(pooled + pixel[:, None] * CHANNELS + channel, mean.to(pooled.dtype.element_ty), mask=real)


@triton.jit
def _backward(
    xhat,
    scale,
    shift,
    slope,
    xhat_slope,
    partial,
    n_places,
    EACH: tl.constexpr,
    STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIZE: tl.constexpr,
    PLACES: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Write the slope of ``xhat``, and each program's sums for those of scale and shift: (programs, 2, WIDE)."""
    channel = tl.arange(0, WIDE)[None, :]
    scales = tl.load(scale + channel, mask=channel < CHANNELS, other=0.0)
    shifts = tl.load(shift + channel, mask=channel < CHANNELS, other=0.0)
    of_scale = tl.zeros((PLACES, WIDE), dtype=tl.float32)
    of_shift = tl.zeros((PLACES, WIDE), dtype=tl.float32)
    for turn in range(EACH):
        place = (tl.program_id(0) * EACH + turn) * PLACES + tl.arange(0, PLACES)
        real = (place < n_places)[:, None] & (channel < CHANNELS)
        row, column = place // (COLUMNS * SIZE), place % (COLUMNS * SIZE)  # images lie below each other
        pixel = row // SIZE * COLUMNS + column // SIZE
        above = tl.load(slope + pixel[:, None] * CHANNELS + channel, mask=real, other=0.0).to(tl.float32)
        seen = tl.load(xhat + place[:, None] * STRIDE + channel, mask=real, other=0.0).to(tl.float32)
        inner = tl.where(seen * scales + shifts > 0, above / (SIZE * SIZE), 0.0)
        tl.store(
            xhat_slope + place[:, None] * STRIDE + channel, (inner * scales).to(xhat_slope.dtype.element_ty), mask=real
        )
        of_scale += inner * seen
        of_shift += inner
    at = partial + tl.program_id(0) * 2 * WIDE + tl.arange(0, WIDE)
    tl.store(at, tl.sum(of_scale, axis=0))
    tl.store(at + WIDE, tl.sum(of_shift, axis=0))


class _RectifyAndPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, xhat: Tensor, scale: Tensor, shift: Tensor, size: int) -> Tensor:
        n, channels, height, width = xhat.shape
        rows, columns, stride = height // size, width // size, xhat.stride(3)
        wide = triton.next_power_of_2(channels)
        pooled = xhat.new_empty(n * rows * columns, channels)
        pixels = _pixels(len(pooled))
        _forward[(triton.cdiv(len(pooled), pixels),)](
            xhat,
            scale,
            shift,
            pooled,
            len(pooled),
            STRIDE=stride,
            CHANNELS=channels,
            COLUMNS=columns,
            SIZE=size,
            PIXELS=pixels,
            WIDE=wide,
            num_warps=8,
            num_stages=1,
        )
        ctx.save_for_backward(xhat, scale, shift)
        ctx.size = size
        return pooled.view(n, rows, columns, channels).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        xhat, scale, shift = ctx.saved_tensors
        n, channels, height, width = xhat.shape
        size, stride = ctx.size, xhat.stride(3)
        slope = slope.contiguous(memory_format=torch.channels_last)
        n_places = n * height * width
        blocks = triton.cdiv(n_places, _PLACES)
        each = triton.cdiv(blocks, _PROGRAMS)
        programs = triton.cdiv(blocks, each)
        wide = triton.next_power_of_2(channels)
        partial = scale.new_empty(programs, 2, wide)
        xhat_slope = xhat.new_empty(n, height, width, stride)[..., :channels].permute(0, 3, 1, 2)
        _backward[(programs,)](
            xhat,
            scale,
            shift,
            slope,
            xhat_slope,
            partial,
            n_places,
            EACH=each,
            STRIDE=stride,
            CHANNELS=channels,
            COLUMNS=width // size,
            SIZE=size,
            PLACES=_PLACES,
            WIDE=wide,
            num_warps=8,
            num_stages=1,
        )
        of_scale, of_shift = partial.sum(0)[:, :channels].unbind()
        return xhat_slope, of_scale, of_shift, None


def _pixels(n: int) -> int:
    """Return how many pooled pixels a program has at a time: fewer where there are few, so that all have work."""
    return 64 if n >= 64 * 264 else 4


def rectify_and_pool(xhat: Tensor, scale: Tensor, shift: Tensor, size: int) -> Tensor:
    """Return means over squares of ``size`` by ``size`` pixels of ``relu(scale * xhat + shift)``.

    Parameters
    ----------
    xhat
        Normalised channels, (n, channels, height, width), channels last in memory, as ``dense_block`` returns them;
        height and width are multiples of ``size``.
    scale, shift
        (channels,), float32.
    size
        2 between blocks; that of the image after the last.
    """
    return _RectifyAndPool.apply(xhat, scale, shift, size)
