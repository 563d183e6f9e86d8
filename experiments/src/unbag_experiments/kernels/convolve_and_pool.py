"""Convolution, rectifier and maximum pooling of many small models at once, each step one matrix product.

A pooled value is the largest of four neighbouring outputs of the convolution, which together see a window one pixel
larger than its kernel. So all four are one product: the window, and a one for the bias, times a matrix with a column
for each corner and output channel. Nothing but the pooled values is written, with the corner that each came from; the
backward pass reads the same windows again. Weights have a leading dimension of replicas, as in `torch.func`.

This is what makes several LeNets fast: their convolutions have so few channels that elsewhere the time goes into
patches, intermediate images and launches.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d, relu

NOWHERE = tl.constexpr(4)
"""In place of a corner: none of the four outputs is positive."""

_ROWS = 128
"""Places of one program."""
_DEPTH = 32
"""Taps that it multiplies at a time."""
_TAPS = 64
"""Taps of a program that adds up slopes of weights."""
_PARTS = 48
"""Into how many sums over places these are split, or a few less."""
_MANY = 16
"""How many of those are loaded at a time."""
_LAUNCH = {"num_warps": 4, "num_stages": 1}  # loads ahead of time, by more stages, are several times slower


@triton.jit
def _window(
    images,
    place,
    inside,
    tap,
    n_channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    side: tl.constexpr,
    pad: tl.constexpr,
):
    """Return what pooled places see, by tap: pixels of their windows, then a one, then zeros.

    ``place`` and ``tap`` are offsets that broadcast against each other, one a column and one a row.
    """
    image = place // (out_height * out_width)
    row = 2 * (place // out_width % out_height) - pad + tap // side % side
    column = 2 * (place % out_width) - pad + tap % side
    channel = tap // (side * side)
    seen = inside & (channel < n_channels) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    at = ((image * n_channels + channel) * height + row) * width + column
    pixels = tl.load(images + at, mask=seen, other=0.0)
    return tl.where(inside & (tap == n_channels * side * side), 1.0, pixels)


@triton.jit
def _corner_weights(
    weight, bias, tap, output, corner, n_channels: tl.constexpr, n_outputs: tl.constexpr, side: tl.constexpr
):
    """Return the weight of each tap for outputs at corners of the pooled place; that of the one is the bias."""
    kernel: tl.constexpr = side - 1
    channel = tap // (side * side)
    row = tap // side % side - corner // 2
    column = tap % side - corner % 2
    real = output < n_outputs
    seen = real & (channel < n_channels) & (row >= 0) & (row < kernel) & (column >= 0) & (column < kernel)
    weights = tl.load(weight + ((output * n_channels + channel) * kernel + row) * kernel + column, mask=seen, other=0.0)
    biases = tl.load(bias + output + 0 * tap, mask=real & (tap == n_channels * side * side), other=0.0)
    return weights + biases


@triton.jit
def _slopes_at_corners(
    slope, corner_of, place, inside, corner, output, n_outputs: tl.constexpr, n_places: tl.constexpr
):
    """Return slopes of the outputs before pooling: those of pooled places where they came from this corner, else 0."""
    real = inside & (output < n_outputs)
    image = place // n_places
    at = (image * n_outputs + output) * n_places + place % n_places
    came_from = tl.load(corner_of + at, mask=real, other=NOWHERE)
    return tl.where(came_from == corner, tl.load(slope + at, mask=real, other=0.0), 0.0)


@triton.jit
def _forward(
    images,
    weight,
    bias,
    pooled,
    corner_of,
    image_stride,
    n_places_all,
    n_channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    n_outputs: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    depth: tl.constexpr,
    side: tl.constexpr,
    pad: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr,
    step: tl.constexpr,
    precision: tl.constexpr,
):
    replica = tl.program_id(1)
    images += replica * image_stride
    weight += replica * n_outputs * n_channels * (side - 1) * (side - 1)
    bias += replica * n_outputs
    pooled += replica * n_places_all * n_outputs
    corner_of += replica * n_places_all * n_outputs
    place = tl.program_id(0) * rows + tl.arange(0, rows)
    inside = place < n_places_all
    columns = tl.arange(0, 4 * wide)
    outputs = tl.zeros((rows, 4 * wide), dtype=tl.float32)
    for start in range(0, depth, step):
        tap = start + tl.arange(0, step)
        seen = _window(
            images,
            place[:, None],
            inside[:, None],
            tap[None, :],
            n_channels,
            height,
            width,
            out_height,
            out_width,
            side,
            pad,
        )
        weights = _corner_weights(
            weight, bias, tap[:, None], columns[None, :] % wide, columns[None, :] // wide, n_channels, n_outputs, side
        )
        outputs = tl.dot(seen, weights, outputs, input_precision=precision)
    best, corner = tl.max(tl.reshape(outputs, (rows, 4, wide)), axis=1, return_indices=True)
    output = tl.arange(0, wide)[None, :]
    n_places = out_height * out_width
    at = (place[:, None] // n_places * n_outputs + output) * n_places + place[:, None] % n_places
    real = inside[:, None] & (output < n_outputs)
    tl.store(pooled + at, tl.maximum(best, 0.0), mask=real)
    tl.store(corner_of + at, tl.where(best > 0, corner, NOWHERE).to(tl.uint8), mask=real)


@triton.jit
def _slopes_of_weights(
    images,
    slope,
    corner_of,
    partial,
    image_stride,
    n_places_all,
    n_channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    n_outputs: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    depth: tl.constexpr,
    per_part: tl.constexpr,
    side: tl.constexpr,
    pad: tl.constexpr,
    wide: tl.constexpr,
    rows: tl.constexpr,
    step: tl.constexpr,
    precision: tl.constexpr,
):
    """Add up windows times slopes over a part of the places, for some taps: (replicas, parts, depth, 4 * wide)."""
    part, replica = tl.program_id(1), tl.program_id(2)
    images += replica * image_stride
    slope += replica * n_places_all * n_outputs
    corner_of += replica * n_places_all * n_outputs
    tap = tl.program_id(0) * step + tl.arange(0, step)
    columns = tl.arange(0, 4 * wide)
    totals = tl.zeros((step, 4 * wide), dtype=tl.float32)
    for block in range(per_part):
        place = (part * per_part + block) * rows + tl.arange(0, rows)
        inside = place < n_places_all
        seen = _window(
            images,
            place[None, :],
            inside[None, :],
            tap[:, None],
            n_channels,
            height,
            width,
            out_height,
            out_width,
            side,
            pad,
        )
        slopes = _slopes_at_corners(
            slope,
            corner_of,
            place[:, None],
            inside[:, None],
            columns[None, :] // wide,
            columns[None, :] % wide,
            n_outputs,
            out_height * out_width,
        )
        totals = tl.dot(seen, slopes, totals, input_precision=precision)
    partial += (replica * tl.num_programs(1) + part) * depth * 4 * wide
    tl.store(partial + tap[:, None] * (4 * wide) + columns[None, :], totals, mask=tap[:, None] < depth)


@triton.jit
def _collect(
    partial,
    weight_slope,
    bias_slope,
    n_parts: tl.constexpr,
    n_channels: tl.constexpr,
    n_outputs: tl.constexpr,
    depth: tl.constexpr,
    side: tl.constexpr,
    wide: tl.constexpr,
    many: tl.constexpr,
):
    """Add up the parts: of each weight, its four corners; a program has one weight, or the bias, of all outputs."""
    kernel: tl.constexpr = side - 1
    which, replica = tl.program_id(0), tl.program_id(1)
    n_weights = n_channels * kernel * kernel
    is_bias = which == n_weights
    channel = which // (kernel * kernel)
    row, column = which // kernel % kernel, which % kernel
    output = tl.arange(0, wide)[None, :]
    total = tl.zeros((many, wide), dtype=tl.float32)
    for start in range(0, n_parts, many):
        part = start + tl.arange(0, many)[:, None]
        for corner in tl.static_range(4):
            tap = (channel * side + row + corner // 2) * side + column + corner % 2
            tap = tl.where(is_bias, n_channels * side * side, tap)
            at = ((replica * n_parts + part) * depth + tap) * (4 * wide) + corner * wide + output
            total += tl.load(partial + at, mask=(part < n_parts) & (output < n_outputs), other=0.0)
    summed = tl.sum(total, axis=0)
    output = tl.arange(0, wide)
    real = output < n_outputs
    tl.store(weight_slope + (replica * n_outputs + output) * n_weights + which, summed, mask=real & (which < n_weights))
    tl.store(bias_slope + replica * n_outputs + output, summed, mask=real & is_bias)


@triton.jit
def _slopes_of_images(
    slope,
    corner_of,
    weight,
    bias,
    image_slope,
    n_cells_all,
    n_places_all,
    n_channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    n_outputs: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    cell_rows: tl.constexpr,
    cell_columns: tl.constexpr,
    side: tl.constexpr,
    pad: tl.constexpr,
    wide: tl.constexpr,
    deep: tl.constexpr,
    rows: tl.constexpr,
    precision: tl.constexpr,
):
    """Return slopes of the pixels, two by two: each square of them is seen by the same few windows.

    A pixel has row ``2 * cell + odd - pad``; the window of pooled row ``cell - back`` sees it as its row
    ``2 * back + odd``.
    """
    reach: tl.constexpr = (side + 1) // 2
    replica = tl.program_id(1)
    slope += replica * n_places_all * n_outputs
    corner_of += replica * n_places_all * n_outputs
    weight += replica * n_outputs * n_channels * (side - 1) * (side - 1)
    cell = tl.program_id(0) * rows + tl.arange(0, rows)
    n_cells = cell_rows * cell_columns
    image = cell // n_cells
    cell_row = cell // cell_columns % cell_rows
    cell_column = cell % cell_columns
    columns = tl.arange(0, 4 * wide)
    target = tl.arange(0, 4 * deep)  # which of the four pixels, and channel
    odd, channel = target // deep, target % deep
    totals = tl.zeros((rows, 4 * deep), dtype=tl.float32)
    for back in range(reach * reach):
        out_row, out_column = cell_row - back // reach, cell_column - back % reach
        inside = (cell < n_cells_all) & (out_row >= 0) & (out_row < out_height)
        inside = inside & (out_column >= 0) & (out_column < out_width)
        place = (image * out_height + out_row) * out_width + out_column
        slopes = _slopes_at_corners(
            slope,
            corner_of,
            place[:, None],
            inside[:, None],
            columns[None, :] // wide,
            columns[None, :] % wide,
            n_outputs,
            out_height * out_width,
        )
        seen_row, seen_column = 2 * (back // reach) + odd // 2, 2 * (back % reach) + odd % 2
        known = (channel < n_channels) & (seen_row < side) & (seen_column < side)
        tap = tl.where(known, (channel * side + seen_row) * side + seen_column, (n_channels + 1) * side * side)
        weights = _corner_weights(
            weight, bias, tap[None, :], columns[:, None] % wide, columns[:, None] // wide, n_channels, n_outputs, side
        )
        totals = tl.dot(slopes, weights, totals, input_precision=precision)
    row = 2 * cell_row[:, None] - pad + odd[None, :] // 2
    column = 2 * cell_column[:, None] - pad + odd[None, :] % 2
    real = (cell[:, None] < n_cells_all) & (channel[None, :] < n_channels)
    real = real & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    at = (
        ((replica * (n_cells_all // n_cells) + image[:, None]) * n_channels + channel[None, :]) * height + row
    ) * width
    tl.store(image_slope + at + column, totals, mask=real)


class _Shape:
    """The sizes that the kernels ask for."""

    def __init__(self, images: Tensor, weight: Tensor, pad: int) -> None:
        self.replicas, self.n, self.channels, self.height, self.width = images.shape
        self.outputs, self.side, self.pad = weight.shape[1], weight.shape[-1] + 1, pad
        self.out_height = (self.height + 2 * pad - self.side + 2) // 2
        self.out_width = (self.width + 2 * pad - self.side + 2) // 2
        self.places = self.n * self.out_height * self.out_width
        self.cell_rows = (self.height - 1 + pad) // 2 + 1
        self.cell_columns = (self.width - 1 + pad) // 2 + 1
        self.depth = self.channels * self.side**2 + 1
        self.wide = max(4, triton.next_power_of_2(self.outputs))  # a product has at least 16 columns
        self.deep = max(4, triton.next_power_of_2(self.channels))
        self.sizes = (self.channels, self.height, self.width, self.outputs, self.out_height, self.out_width)


def _precision() -> str:
    """Say how products are rounded: as those of torch's own convolutions are."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


class _Stacked(torch.autograd.Function):
    """From images (replicas, n, channels, height, width) to pooled outputs, with weights of each replica."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, pad: int) -> Tensor:
        if not images[0].is_contiguous():
            images = images.contiguous()
        shape = _Shape(images, weight, pad)
        weight, bias = weight.contiguous(), bias.contiguous()
        pooled = images.new_empty((shape.replicas, shape.n, shape.outputs, shape.out_height, shape.out_width))
        corner_of = torch.empty_like(pooled, dtype=torch.uint8)
        _forward[triton.cdiv(shape.places, _ROWS), shape.replicas](
            images,
            weight,
            bias,
            pooled,
            corner_of,
            images.stride(0),
            shape.places,
            *shape.sizes,
            shape.depth,
            side=shape.side,
            pad=pad,
            wide=shape.wide,
            rows=_ROWS,
            step=_DEPTH,
            precision=_precision(),
            **_LAUNCH,
        )
        ctx.save_for_backward(images, weight, bias, corner_of)
        ctx.shape = shape
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, bias, corner_of = ctx.saved_tensors
        shape: _Shape = ctx.shape
        slope = slope.contiguous()
        image_slope = None
        if ctx.needs_input_grad[0]:
            image_slope = torch.empty_like(images, memory_format=torch.contiguous_format)
            cells = shape.n * shape.cell_rows * shape.cell_columns
            _slopes_of_images[triton.cdiv(cells, _ROWS), shape.replicas](
                slope,
                corner_of,
                weight,
                bias,
                image_slope,
                cells,
                shape.places,
                *shape.sizes,
                shape.cell_rows,
                shape.cell_columns,
                side=shape.side,
                pad=shape.pad,
                wide=shape.wide,
                deep=shape.deep,
                rows=_ROWS,
                precision=_precision(),
                **_LAUNCH,
            )
        weight_slope, bias_slope = torch.empty_like(weight), torch.empty_like(bias)
        blocks = triton.cdiv(shape.places, _ROWS)
        per_part = triton.cdiv(blocks, _PARTS)
        parts = triton.cdiv(blocks, per_part)
        partial = images.new_empty((shape.replicas, parts, shape.depth, 4 * shape.wide))
        _slopes_of_weights[triton.cdiv(shape.depth, _TAPS), parts, shape.replicas](
            images,
            slope,
            corner_of,
            partial,
            images.stride(0),
            shape.places,
            *shape.sizes,
            shape.depth,
            per_part,
            side=shape.side,
            pad=shape.pad,
            wide=shape.wide,
            rows=_ROWS,
            step=_TAPS,
            precision=_precision(),
            **_LAUNCH,
        )
        _collect[shape.channels * (shape.side - 1) ** 2 + 1, shape.replicas](
            partial,
            weight_slope,
            bias_slope,
            parts,
            shape.channels,
            shape.outputs,
            shape.depth,
            side=shape.side,
            wide=shape.wide,
            many=_MANY,
        )
        return image_slope, weight_slope, bias_slope, None


class _OfOne(torch.autograd.Function):
    """The same for one model, which `torch.vmap` turns into that for many."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor, pad: int) -> Tensor:
        return _Stacked.apply(images[None], weight[None], bias[None], pad)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep: what is differentiated is `_Stacked`."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs[:3], in_dims, strict=False)
        ]
        return _Stacked.apply(*stacked, inputs[3]), 0


class ConvolveAndPool(nn.Conv2d):
    """A convolution with the rectifier and the pooling of two by two that follow it, for use in `torch.vmap`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return rectified and pooled outputs, (n, channels, rows, columns)."""
        if x.dtype == self.weight.dtype == torch.float32:
            return _OfOne.apply(x, self.weight, self.bias, self.padding[0])
        return max_pool2d(relu(super().forward(x)), 2)
