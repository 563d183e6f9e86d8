"""A dense block with batch norm as few kernels: each channel is normalised once, when it is made.

In a dense block each layer normalises all channels before it, scales and shifts them by its own parameters, rectifies
them, and appends the channels that a 3x3 convolution makes of them. The batch mean and variance of a channel are the
same for all layers that read it. So a channel is stored normalised; scale, shift, relu and convolution are one kernel
that reads it, and one kernel goes back through all four. What is computed is what the published network computes.

Positions are the pixels of all images in a row, ``image * height * width + row * width + column``. Channels of a
position lie next to each other in memory, in the order of the network. A convolution is a matrix product of what its
nine taps see, gathered by one load for eight of them, since sizes are powers of two, and another for the last.

Sums over positions are first those of each program, stored one by one, and then added up in a fixed order: results do
not differ from run to run. No kernel waits for the host, so that all can be part of a captured graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_FEW = 16
"""Channels that the forward convolution reads at a time: one sector of memory in bfloat16."""


@dataclass(frozen=True)
class Tuning:
    """How work is cut into programs; results are the same up to rounding. Defaults are the fastest seen on an H200."""

    forward_positions: int = 128
    """Positions in one matrix product of the forward convolution."""
    forward_warps: int = 8
    forward_registers: int | None = 128
    """At most as many for each thread; with 128, two programs of 8 warps fit on a multiprocessor."""
    forward_stages: int = 1
    """With 2 or more, what is read next is loaded ahead of its use."""
    forward_programs: int = 264
    """At most as many programs, each of which goes through several tiles of positions."""
    backward_positions: int = 64
    backward_channels: int = 64
    """Channels that one program of the backward convolution handles: 32 or 64."""
    backward_warps: int = 8
    backward_registers: int | None = None
    backward_stages: int = 3
    backward_programs: int = 132
    """At most as many programs; each stores its sums for the slopes of weights."""
    plain_elements: int = 8192
    """Positions times channels that a program handles at a time in kernels that do one thing per element."""
    plain_warps: int = 8
    plain_programs: int = 512
    sum_elements: int = 64
    """Slopes of weights that one program adds up."""


def dense_block(
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    shifts: Sequence[Tensor],
    eps: float = 1e-5,
    *,
    tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the layers of a dense block, in training mode.

    Layer ``l`` reads ``c0 + l * growth`` channels: the input, then what the layers before it made.

    Parameters
    ----------
    x
        What enters the block, not normalised yet: (n, c0, height, width), bfloat16, or float32 for exact tests; fastest
        if channels are last in memory.
    weights
        Of the convolutions: (growth, c0 + l * growth, 3, 3) each, float32.
    scales, shifts
        Of the norms: (c0 + l * growth,) each, float32.
    eps
        Added to variances.
    tuning
        How work is cut.

    Returns
    -------
    xhat
        All channels, normalised by their batch statistics: (n, c0 + layers * growth, height, width), of the type of
        ``x``, channels last in memory; a position's channels take a multiple of 16 places, of which the last may be
        unused, so that ``stride(3)`` is that multiple.
    mean, variance
        Batch statistics of each channel before it was normalised, float32; the variance divides by the number of
        positions. No gradient flows through them.
    """
    layers = len(weights)
    if not layers or len(scales) != layers or len(shifts) != layers:
        raise ValueError(f"each layer needs a weight, a scale and a shift, got {layers}, {len(scales)}, {len(shifts)}")
    growth = weights[0].shape[0]
    for layer, parts in enumerate(zip(weights, scales, shifts, strict=True)):
        channels = x.shape[1] + layer * growth
        if [tuple(part.shape) for part in parts] != [(growth, channels, 3, 3), (channels,), (channels,)]:
            raise ValueError(f"layer {layer} should read {channels} channels and make {growth}, got {parts[0].shape}")
    return _DenseBlock.apply(x, eps, tuning or Tuning(), layers, *weights, *scales, *shifts)


@dataclass(frozen=True)
class _Shape:
    """Sizes of a block, and what follows from them."""

    n: int
    height: int
    width: int
    inputs: int
    growth: int
    layers: int

    @property
    def positions(self) -> int:
        return self.n * self.height * self.width

    @property
    def channels(self) -> int:
        """All channels that leave the block."""
        return self.reads(self.layers)

    @property
    def stride(self) -> int:
        """Places for the channels of a position: whole sectors of memory."""
        return _round_up(self.channels, 16)

    @property
    def padded_growth(self) -> int:
        return max(16, int(triton.next_power_of_2(self.growth)))

    @property
    def padded_channels(self) -> int:
        """Channels of packed parameters; those that a layer does not read are zero."""
        return _round_up(self.channels, 64)

    @property
    def align(self) -> int:
        """A divisor of the places where layers start."""
        return gcd(self.inputs, self.growth, 8)

    def reads(self, layer: int) -> int:
        """Return how many channels a layer reads: the place of the first that it makes."""
        return self.inputs + layer * self.growth

    def before(self, layer: int) -> int:
        """Return how many channels all layers before this one read, in sum."""
        return layer * self.inputs + self.growth * (layer * (layer - 1) // 2)

    @property
    def n_weights(self) -> int:
        return 9 * self.growth * self.before(self.layers)

    def readable(self, layer: int) -> int:
        """Return how many channels a layer may load: those beyond its own are zero, or finite and of no effect."""
        return _round_up(self.reads(layer), 8)


class _DenseBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, tuning: Tuning, layers: int, *parameters: Tensor) -> Any:
        """Return normalised channels and their statistics."""
        n, inputs, height, width = x.shape
        shape = _Shape(n, height, width, inputs, parameters[0].shape[0], layers)
        positions, growth, padded = shape.positions, shape.growth, shape.padded_growth
        x, x_stride = _rows(x)
        weights = parameters[:layers]
        # (growth, 3, 3, channels) in memory, or as they are made: (growth, channels, 3, 3)
        last = all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
        flat = torch.cat(
            [weight.permute(0, 2, 3, 1).reshape(-1) if last else weight.reshape(-1) for weight in weights]
            + [part.reshape(-1) for part in parameters[layers:]]
        )
        by_few = x.new_empty(layers, shape.padded_channels // _FEW, 9, _FEW, padded)
        by_tap = x.new_empty(layers, 9 * growth, shape.padded_channels)
        affine = x.new_empty(layers, 2, shape.padded_channels)
        _pack[(layers, shape.padded_channels // _FEW)](
            flat, by_few, by_tap, affine, layers, inputs, LAST=last,
            GROWTH=growth, PADDED=padded, CHANNELS=shape.padded_channels, FEW=_FEW,
            BLOCK_K=triton.next_power_of_2(9 * padded),
        )  # fmt: skip

        xhat = x.new_empty(positions, shape.stride)
        statistics = flat.new_empty(3, shape.channels)
        made = x.new_empty(positions, padded)

        block = triton.next_power_of_2(inputs)
        tile = _tile(positions, block, tuning)
        programs, each = _cut(positions, tile, tuning.plain_programs)
        partial = flat.new_empty(programs, 2, block)
        _sum_products[(programs,)](
            x, x, partial, positions, each, 0, 0,
            FIRST_STRIDE=x_stride, SECOND_STRIDE=x_stride, ALIGN=8, CHANNELS=inputs, BLOCK_C=block,
            BLOCK_P=tile, num_warps=tuning.plain_warps,
        )  # fmt: skip
        _norm(x, x_stride, partial, xhat, statistics, 0, inputs, eps, shape, tuning)

        programs, each = _cut(positions, tuning.forward_positions, tuning.forward_programs)
        partial = flat.new_empty(programs, 2, padded)
        for layer in range(layers):
            _convolve[(programs,)](
                xhat, by_few[layer], affine[layer], made, partial, positions, each,
                triton.cdiv(shape.reads(layer), _FEW), HEIGHT=height, WIDTH=width, STRIDE=shape.stride,
                CHANNELS=shape.padded_channels, PADDED=padded, FEW=_FEW, BLOCK_P=tuning.forward_positions,
                PACKED=_packed(x), num_warps=tuning.forward_warps, num_stages=tuning.forward_stages,
                maxnreg=tuning.forward_registers,
            )  # fmt: skip
            _norm(made, padded, partial, xhat, statistics, shape.reads(layer), growth, eps, shape, tuning)

        ctx.shape, ctx.tuning, ctx.last = shape, tuning, last
        mean, variance, inverse = statistics.unbind()
        seen = xhat.view(n, height, width, shape.stride)[..., : shape.channels].permute(0, 3, 1, 2)
        ctx.save_for_backward(seen, inverse, by_tap, affine)
        ctx.mark_non_differentiable(mean, variance)
        return seen, mean, variance

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return slopes of the input, weights, scales and shifts."""
        shape: _Shape = ctx.shape
        tuning: Tuning = ctx.tuning
        seen, inverse, by_tap, affine = ctx.saved_tensors
        positions, growth, layers, padded = shape.positions, shape.growth, shape.layers, shape.padded_growth
        source, source_stride = _rows(slopes[0])
        target = seen.new_empty(positions, shape.stride)
        gradient = inverse.new_empty(shape.n_weights + 2 * shape.before(layers))
        totals = inverse.new_empty(2, shape.channels)
        align = 8 if shape.readable(layers - 1) <= shape.channels else shape.align
        d_made = seen.new_empty(positions, growth)

        # What the last layer made is read by what follows the block only.
        place = shape.reads(layers - 1)
        tile = _tile(positions, padded, tuning)
        programs, each = _cut(positions, tile, tuning.plain_programs)
        partial = inverse.new_empty(programs, 2, padded)
        _sum_products[(programs,)](
            source, seen, partial, positions, each, place // shape.align, place // shape.align,
            FIRST_STRIDE=source_stride, SECOND_STRIDE=shape.stride, ALIGN=shape.align, CHANNELS=growth, BLOCK_C=padded,
            BLOCK_P=tile, num_warps=tuning.plain_warps,
        )  # fmt: skip
        _norm_back(source, source_stride, seen, inverse, partial, d_made, growth, place, growth, shape, tuning)

        for layer in reversed(range(layers)):
            reads = shape.reads(layer)
            first = layer == layers - 1
            blocks = triton.cdiv(reads, tuning.backward_channels)
            columns = blocks * tuning.backward_channels
            splits, each = _cut(positions, tuning.backward_positions, max(1, tuning.backward_programs // blocks))
            weight_sums = inverse.new_empty(splits, 9 * growth, columns)
            sums = inverse.new_empty(splits, 4, columns)
            _convolve_back[(splits, blocks)](
                seen, d_made, by_tap[layer], affine[layer], source, target, weight_sums, sums, positions, each,
                (shape.readable(layer) if align == 8 else reads) // align,
                HEIGHT=shape.height, WIDTH=shape.width, SOURCE_STRIDE=source_stride, STRIDE=shape.stride,
                CHANNELS=shape.padded_channels, GROWTH=growth, ALIGN=align,
                BLOCK_K=triton.next_power_of_2(9 * growth), BLOCK_P=tuning.backward_positions,
                BLOCK_C=tuning.backward_channels, FIRST=first, num_warps=tuning.backward_warps,
                num_stages=tuning.backward_stages, maxnreg=tuning.backward_registers,
            )  # fmt: skip
            source, source_stride = target, shape.stride
            block = tuning.sum_elements
            _add_up[(triton.cdiv(9 * growth * columns, block) + triton.cdiv(columns, block),)](
                weight_sums, sums, affine[layer], totals, gradient, splits, columns, reads, shape.channels,
                9 * growth * shape.before(layer), shape.n_weights + shape.before(layer), shape.before(layers),
                LAST=ctx.last, GROWTH=growth, FIRST=first, BLOCK_S=32, BLOCK_E=block,
            )  # fmt: skip
            if layer:
                place = shape.reads(layer - 1)
                _norm_back(source, source_stride, seen, inverse, totals, d_made, growth, place, growth, shape, tuning)

        dx = None
        if ctx.needs_input_grad[0]:
            dx = seen.new_empty(shape.n, shape.height, shape.width, shape.inputs).permute(0, 3, 1, 2)
            _norm_back(target, shape.stride, seen, inverse, totals, dx, shape.inputs, 0, shape.inputs, shape, tuning)
        return dx, None, None, None, *_unpack(gradient, shape, ctx.last)


def _unpack(gradient: Tensor, shape: _Shape, last: bool) -> list[Tensor]:
    """Return slopes of weights, scales and shifts as views of one tensor that holds them all."""
    reads = [shape.reads(layer) for layer in range(shape.layers)]
    sizes = [9 * shape.growth * width for width in reads] + 2 * reads
    parts = list(torch.split(gradient, sizes))
    for layer, width in enumerate(reads):
        if last:
            parts[layer] = parts[layer].view(shape.growth, 3, 3, width).permute(0, 3, 1, 2)
        else:
            parts[layer] = parts[layer].view(shape.growth, width, 3, 3)
    return parts


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def _cut(positions: int, block: int, most: int) -> tuple[int, int]:
    """Return how many programs there are, and through how many tiles of positions each goes."""
    tiles = triton.cdiv(positions, block)
    each = triton.cdiv(tiles, most)
    return triton.cdiv(tiles, each), each


def _tile(positions: int, channels: int, tuning: Tuning) -> int:
    """Return how many positions are handled at a time; fewer if there would not be work for all multiprocessors."""
    tile = max(16, tuning.plain_elements // channels)
    while tile > 32 and triton.cdiv(positions, tile) < 256:
        tile //= 2
    return tile


def _rows(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a tensor (n, c, height, width) with a position's channels side by side, and how far positions are apart.

    It is copied only if it is not so already.
    """
    c, height, width = tensor.shape[1:]
    step = tensor.stride(3) if width > 1 else c
    wanted = (height * width * step, 1, width * step, step)
    strides = tensor.stride()
    if step >= c and all(size == 1 or strides[dim] == wanted[dim] for dim, size in enumerate(tensor.shape)):
        return tensor, step
    # Not contiguous(memory_format=...), which takes several orders of dimensions of size 1 for the same.
    return tensor.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), c


def _packed(x: Tensor) -> bool:
    """Whether two numbers are handled by one instruction, which the interpreter lacks."""
    return x.is_cuda and x.dtype == torch.bfloat16


def _norm(
    source: Tensor, source_stride: int, partial: Tensor, xhat: Tensor, statistics: Tensor, place: int, channels: int,
    eps: float, shape: _Shape, tuning: Tuning,
) -> None:  # fmt: skip
    """Normalise channels and store them from a place on; the places after it are set to zero, for loads beyond it."""
    end = _round_up(place + channels, _FEW) - place
    block = triton.next_power_of_2(end)
    tile = _tile(shape.positions, block, tuning)
    programs, each = _cut(shape.positions, tile, tuning.plain_programs)
    _normalise[(programs,)](
        source, partial, xhat, statistics, shape.positions, each, len(partial), eps, place // shape.align,
        shape.channels, SOURCE_STRIDE=source_stride, ALIGN=shape.align, CHANNELS=channels, END=end, STRIDE=shape.stride,
        BLOCK_C=block, PARTIAL_C=partial.shape[-1], BLOCK_S=triton.next_power_of_2(len(partial)), BLOCK_P=tile,
        num_warps=tuning.plain_warps,
    )  # fmt: skip


def _norm_back(
    source: Tensor, source_stride: int, seen: Tensor, inverse: Tensor, sums: Tensor, target: Tensor, target_stride: int,
    place: int, channels: int, shape: _Shape, tuning: Tuning,
) -> None:  # fmt: skip
    """Go back through the norm of channels from a place on; ``sums`` are totals of all channels, or parts of theirs."""
    block = triton.next_power_of_2(target_stride)
    tile = _tile(shape.positions, block, tuning)
    programs, each = _cut(shape.positions, tile, tuning.plain_programs)
    whole = sums.dim() == 2
    parts = 1 if whole else len(sums)
    _normalise_back[(programs,)](
        source, seen, inverse, sums, target, shape.positions, each, parts, place // shape.align, sums.shape[-1],
        place if whole else 0, 1.0 / shape.positions, ALIGN=shape.align, CHANNELS=channels, SOURCE_STRIDE=source_stride,
        STRIDE=shape.stride, TARGET_STRIDE=target_stride, BLOCK_C=block,
        BLOCK_S=triton.next_power_of_2(parts), BLOCK_P=tile, num_warps=tuning.plain_warps,
    )  # fmt: skip


@triton.jit(do_not_specialize=["layers", "inputs"])
def _pack(
    flat, by_few, by_tap, affine, layers, inputs,
    LAST: tl.constexpr, GROWTH: tl.constexpr, PADDED: tl.constexpr, CHANNELS: tl.constexpr, FEW: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Lay out parameters as the convolutions read them, rounded to their type, with zeros where there are none.

    ``flat`` holds the weights of all layers, then scales, then shifts. ``by_few`` is (layers, CHANNELS / FEW, 9, FEW,
    PADDED), ``by_tap`` (layers, 9 * GROWTH, CHANNELS), ``affine`` (layers, 2, CHANNELS). A program packs FEW channels
    of one layer.
    """
    layer = tl.program_id(0)
    few = tl.program_id(1)
    reads = inputs + layer * GROWTH
    before = layer * inputs + GROWTH * (layer * (layer - 1) // 2)
    all_reads = layers * inputs + GROWTH * (layers * (layers - 1) // 2)
    inner = tl.arange(0, FEW)
    channel = few * FEW + inner
    read = channel < reads
    wide = tl.arange(0, BLOCK_K)
    tap = wide // PADDED
    out = wide % PADDED
    used = wide < 9 * PADDED
    made = used & (out < GROWTH)
    # channels come before taps unless LAST
    if LAST:
        within = (out * 9 + tap)[:, None] * reads + channel[None, :]
    else:
        within = (out * reads * 9 + tap)[:, None] + channel[None, :] * 9
    start = before * 9 * GROWTH
    weight = tl.load(flat + start + within, mask=made[:, None] & read[None, :], other=0.0)
    weight = weight.to(by_few.dtype.element_ty)  # (BLOCK_K, FEW)
    block = layer * (CHANNELS // FEW) + few
    few_at = (block * 9 + tap) * (FEW * PADDED) + out
    tl.store(by_few + few_at[:, None] + inner[None, :] * PADDED, weight, mask=used[:, None])
    tap_at = ((layer * 9 + tap) * GROWTH + out) * CHANNELS
    tl.store(by_tap + tap_at[:, None] + channel[None, :], weight, mask=made[:, None])
    where = all_reads * 9 * GROWTH + before + channel
    scale = tl.load(flat + where, mask=read, other=0.0)
    shift = tl.load(flat + where + all_reads, mask=read, other=0.0)
    tl.store(affine + layer * 2 * CHANNELS + channel, scale.to(affine.dtype.element_ty))
    tl.store(affine + (layer * 2 + 1) * CHANNELS + channel, shift.to(affine.dtype.element_ty))


@triton.jit(do_not_specialize=["each", "first_place", "second_place"])
def _sum_products(
    first, second, partial, positions, each, first_place, second_place,
    FIRST_STRIDE: tl.constexpr, SECOND_STRIDE: tl.constexpr, ALIGN: tl.constexpr, CHANNELS: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Sum one tensor, and its product with another, over the positions of each program.

    Sums go to ``partial`` (programs, 2, BLOCK_C). Tensors are (positions, stride); channels start at a place, which
    counts in steps of ALIGN.
    """
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    products = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for tile in range(program * each, (program + 1) * each):
        position = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        mask = (position < positions)[:, None] & (channel < CHANNELS)[None, :]
        at = position[:, None] * FIRST_STRIDE + first_place * ALIGN + channel[None, :]
        one = tl.load(first + at, mask=mask, other=0.0).to(tl.float32)
        at = position[:, None] * SECOND_STRIDE + second_place * ALIGN + channel[None, :]
        other = tl.load(second + at, mask=mask, other=0.0).to(tl.float32)
        total += one
        products += one * other
    tl.store(partial + program * 2 * BLOCK_C + channel, tl.sum(total, 0))
    tl.store(partial + (program * 2 + 1) * BLOCK_C + channel, tl.sum(products, 0))


@triton.jit(do_not_specialize=["each", "parts", "place", "all_channels"])
def _normalise(
    source, partial, xhat, statistics, positions, each, parts, eps, place, all_channels,
    SOURCE_STRIDE: tl.constexpr, ALIGN: tl.constexpr, CHANNELS: tl.constexpr, END: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_C: tl.constexpr, PARTIAL_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Normalise channels of ``source`` (positions, SOURCE_STRIDE) into ``xhat`` (positions, STRIDE) from a place on.

    ``partial`` (parts, 2, PARTIAL_C) holds sums of them and of their squares. Each program adds these up for itself,
    which takes less time than another kernel. Zeros are stored from CHANNELS to END. ``statistics`` (3, all_channels)
    are means, variances and inverse standard deviations.
    """
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    real = channel < CHANNELS
    part = tl.arange(0, BLOCK_S)
    sums_at = partial + part[:, None] * (2 * PARTIAL_C) + channel[None, :]
    summed = (part < parts)[:, None] & real[None, :]
    mean = tl.sum(tl.load(sums_at, mask=summed, other=0.0), 0) / positions
    squares = tl.sum(tl.load(sums_at + PARTIAL_C, mask=summed, other=0.0), 0) / positions
    variance = tl.maximum(squares - mean * mean, 0.0)
    inverse = 1.0 / tl.sqrt(variance + eps)
    if program == 0:
        tl.store(statistics + place * ALIGN + channel, mean, mask=real)
        tl.store(statistics + all_channels + place * ALIGN + channel, variance, mask=real)
        tl.store(statistics + 2 * all_channels + place * ALIGN + channel, inverse, mask=real)
    for tile in range(program * each, (program + 1) * each):
        position = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        here = position < positions
        x = tl.load(
            source + position[:, None] * SOURCE_STRIDE + channel[None, :], mask=here[:, None] & real[None, :], other=0.0
        )
        # beyond CHANNELS mean and x are zero
        normalised = (x.to(tl.float32) - mean[None, :]) * inverse[None, :]
        tl.store(
            xhat + position[:, None] * STRIDE + place * ALIGN + channel[None, :],
            normalised.to(xhat.dtype.element_ty),
            mask=here[:, None] & (channel < END)[None, :],
        )


@triton.jit
def _activate(x, scale, shift, inside, PACKED: tl.constexpr):
    """Scale, shift and rectify (positions, channels), rounded to their type; zero outside of images.

    ``inside`` is true or false or, if PACKED, all bits set or none in 16 of them.
    """
    if PACKED:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 found; fma.rn.relu.bf16x2 found, $1, $2, $3; and.b32 $0, found, $4; }",
            "=r,r,r,r,r",
            [x, scale[None, :], shift[None, :], inside],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        activated = x.to(tl.float32) * scale[None, :].to(tl.float32) + shift[None, :].to(tl.float32)
        return tl.where(inside, tl.maximum(activated, 0.0), 0.0).to(x.dtype)


@triton.jit(do_not_specialize=["each", "blocks"])
def _convolve(
    xhat, weight, affine, made, partial, positions, each, blocks,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr,
    FEW: tl.constexpr, BLOCK_P: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Scale, shift, rectify and convolve: ``xhat`` (positions, STRIDE) to ``made`` (positions, PADDED).

    ``weight`` is (blocks, 9, FEW, PADDED), ``affine`` (2, CHANNELS).
    ``partial`` (programs, 2, PADDED) gets sums of what is made and of its squares.
    """
    program = tl.program_id(0)
    wide = tl.arange(0, 8 * FEW)  # eight taps of a few channels
    inner = wide % FEW
    down = wide // FEW // 3 - 1
    right = wide // FEW % 3 - 1
    few = tl.arange(0, FEW)  # the ninth: one down, one right
    out = tl.arange(0, PADDED)
    total = tl.zeros((BLOCK_P, PADDED), tl.float32)
    squares = tl.zeros((BLOCK_P, PADDED), tl.float32)
    for tile in range(program * each, (program + 1) * each):
        position = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        here = position < positions
        row = position % (HEIGHT * WIDTH) // WIDTH
        column = position % WIDTH
        wide_row = row[:, None] + down[None, :]
        wide_column = column[:, None] + right[None, :]
        wide_inside = (wide_row >= 0) & (wide_row < HEIGHT) & (wide_column >= 0) & (wide_column < WIDTH) & here[:, None]
        inside = ((row < HEIGHT - 1) & (column < WIDTH - 1) & here)[:, None]
        # Outside of images something is loaded as well, and then dropped: loads without conditions are faster.
        wide_place = tl.where(wide_inside, position[:, None] + (down * WIDTH + right)[None, :], 0)
        wide_at = wide_place * STRIDE + inner[None, :]
        at = tl.where(inside, (position + (WIDTH + 1))[:, None], 0) * STRIDE + few[None, :]
        wide_kept = wide_inside
        kept = inside
        if PACKED:
            wide_kept = tl.where(wide_inside, -1, 0).to(tl.int16)
            kept = tl.where(inside, -1, 0).to(tl.int16)
        outputs = tl.zeros((BLOCK_P, PADDED), tl.float32)
        for block in range(blocks):
            start = block * FEW
            wide_x = tl.load(xhat + wide_at + start)
            x = tl.load(xhat + at + start)
            wide_weight = tl.load(weight + start * (9 * PADDED) + wide[:, None] * PADDED + out[None, :])
            last_weight = tl.load(weight + (start * 9 + 8 * FEW) * PADDED + few[:, None] * PADDED + out[None, :])
            wide_scale = tl.load(affine + start + inner)
            wide_shift = tl.load(affine + CHANNELS + start + inner)
            scale = tl.load(affine + start + few)
            shift = tl.load(affine + CHANNELS + start + few)
            wide_a = _activate(wide_x, wide_scale, wide_shift, wide_kept, PACKED)
            a = _activate(x, scale, shift, kept, PACKED)
            outputs = tl.dot(wide_a, wide_weight, outputs, input_precision="ieee")
            outputs = tl.dot(a, last_weight, outputs, input_precision="ieee")
        tl.store(
            made + position[:, None] * PADDED + out[None, :], outputs.to(made.dtype.element_ty), mask=here[:, None]
        )
        total += outputs  # zero beyond the last position
        squares += outputs * outputs
    tl.store(partial + program * 2 * PADDED + out, tl.sum(total, 0))
    tl.store(partial + (program * 2 + 1) * PADDED + out, tl.sum(squares, 0))


@triton.jit(do_not_specialize=["each", "parts", "place"])
def _normalise_back(
    source, xhat, inverse, sums, target, positions, each, parts, place, sums_stride, sums_place, share,
    ALIGN: tl.constexpr, CHANNELS: tl.constexpr, SOURCE_STRIDE: tl.constexpr, STRIDE: tl.constexpr,
    TARGET_STRIDE: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Turn slopes of normalised channels into slopes of what they were before.

    ``source`` (positions, SOURCE_STRIDE) and ``xhat`` (positions, STRIDE) hold them from a place on, ``target``
    (positions, TARGET_STRIDE) gets them, with zeros beyond CHANNELS. ``sums`` (parts, 2, sums_stride) are, from another
    place on, sums of slopes and of their products with ``xhat``; times ``share``, one by the positions, they are means.
    """
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    real = channel < CHANNELS
    part = tl.arange(0, BLOCK_S)
    sums_at = sums + part[:, None] * (2 * sums_stride) + sums_place + channel[None, :]
    summed = (part < parts)[:, None] & real[None, :]
    mean = tl.sum(tl.load(sums_at, mask=summed, other=0.0), 0) * share
    product = tl.sum(tl.load(sums_at + sums_stride, mask=summed, other=0.0), 0) * share
    factor = tl.load(inverse + place * ALIGN + channel, mask=real, other=0.0)
    for tile in range(program * each, (program + 1) * each):
        position = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        here = position < positions
        mask = here[:, None] & real[None, :]
        first = place * ALIGN + channel[None, :]
        slope = tl.load(source + position[:, None] * SOURCE_STRIDE + first, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(xhat + position[:, None] * STRIDE + first, mask=mask, other=0.0).to(tl.float32)
        slopes = (slope - mean[None, :] - x * product[None, :]) * factor[None, :]
        tl.store(
            target + position[:, None] * TARGET_STRIDE + channel[None, :],
            slopes.to(target.dtype.element_ty),
            mask=here[:, None] & (channel < TARGET_STRIDE)[None, :],
        )


@triton.jit(do_not_specialize=["each", "readable"])
def _convolve_back(
    xhat, d_made, weight, affine, source, target, weight_sums, sums, positions, each, readable,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SOURCE_STRIDE: tl.constexpr, STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr, GROWTH: tl.constexpr, ALIGN: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Go back through convolution, relu, shift and scale of a layer, for BLOCK_C of its channels.

    Slopes ``d_made`` (positions, GROWTH) of what the layer made are gathered from where each tap brought a position to.
    One product of them with ``weight`` (9 * GROWTH, CHANNELS) gives slopes of the activations, another one with the
    activations, computed again, those of the weights. Slopes of ``xhat`` (positions, STRIDE) are added to those in
    ``source`` (positions, SOURCE_STRIDE) and stored in ``target`` (positions, STRIDE), which may be the same. Channels
    from ALIGN * ``readable`` on are not loaded; others that the layer does not read have zero scales and stay as they
    are. Each program stores its sums: ``weight_sums`` (programs, 9 * GROWTH, columns) and ``sums`` (programs, 4,
    columns): slopes of shifts, slopes of scales and, if FIRST, ``source`` and ``source`` times ``xhat``.
    """
    program = tl.program_id(0)
    columns = tl.num_programs(1) * BLOCK_C
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    loaded = channel < readable * ALIGN
    scale = tl.load(affine + channel).to(tl.float32)[None, :]
    shift = tl.load(affine + CHANNELS + channel).to(tl.float32)[None, :]
    wide = tl.arange(0, BLOCK_K)  # tap and channel made
    used = wide < 9 * GROWTH
    out = wide % GROWTH
    down = wide // GROWTH // 3 - 1
    right = wide // GROWTH % 3 - 1
    taps = tl.load(weight + wide[:, None] * CHANNELS + channel[None, :], mask=used[:, None], other=0.0)
    tap_sums = tl.zeros((BLOCK_K, BLOCK_C), tl.float32)
    d_shift = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    d_scale = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    products = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for tile in range(program * each, (program + 1) * each):
        position = tile * BLOCK_P + tl.arange(0, BLOCK_P)
        here = position < positions
        row = (position % (HEIGHT * WIDTH) // WIDTH)[:, None] - down[None, :]
        column = (position % WIDTH)[:, None] - right[None, :]
        inside = (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH) & here[:, None] & used[None, :]
        at = (position[:, None] - (down * WIDTH + right)[None, :]) * GROWTH + out[None, :]
        made_slope = tl.load(d_made + at, mask=inside, other=0.0)

        mask = here[:, None] & loaded[None, :]
        given = tl.load(xhat + position[:, None] * STRIDE + channel[None, :], mask=mask, other=0.0)
        so_far = tl.load(source + position[:, None] * SOURCE_STRIDE + channel[None, :], mask=mask, other=0.0)
        x = given.to(tl.float32)
        before = x * scale + shift
        a = tl.maximum(before, 0.0).to(given.dtype)  # any value will do where all slopes are zero

        tap_sums = tl.dot(tl.trans(made_slope), a, tap_sums, input_precision="ieee")
        slope = tl.dot(made_slope, taps, input_precision="ieee")
        slope = tl.where(before > 0, slope, 0.0)
        d_shift += slope
        d_scale += slope * x
        d = so_far.to(tl.float32)
        if FIRST:
            total += d
            products += d * x
        tl.store(
            target + position[:, None] * STRIDE + channel[None, :],
            (d + slope * scale).to(target.dtype.element_ty),
            mask=mask,
        )
    weight_at = weight_sums + (program * (9 * GROWTH) + wide)[:, None] * columns + channel[None, :]
    tl.store(weight_at, tap_sums, mask=used[:, None])
    sums_at = sums + program * 4 * columns + channel
    tl.store(sums_at, tl.sum(d_shift, 0))
    tl.store(sums_at + columns, tl.sum(d_scale, 0))
    if FIRST:
        tl.store(sums_at + 2 * columns, tl.sum(total, 0))
        tl.store(sums_at + 3 * columns, tl.sum(products, 0))


@triton.jit(do_not_specialize=["splits", "reads", "all_channels", "weight_place", "scale_place", "all_reads"])
def _add_up(
    weight_sums, sums, affine, totals, gradient, splits, columns, reads, all_channels, weight_place, scale_place,
    all_reads,
    LAST: tl.constexpr, GROWTH: tl.constexpr, FIRST: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Add up what the programs of ``_convolve_back`` summed: slopes of a layer's parameters, at their places.

    ``totals`` (2, all_channels), sums of slopes of normalised channels and of their products with these, follow without
    another look at the channels: a layer adds to them its scale times the slope of its shift, and of its scale.
    """
    program = tl.program_id(0)
    n_weights = 9 * GROWTH * columns
    weight_programs = tl.cdiv(n_weights, BLOCK_E)
    split = tl.arange(0, BLOCK_S)
    if program < weight_programs:
        element = program * BLOCK_E + tl.arange(0, BLOCK_E)
        parts = tl.zeros((BLOCK_S, BLOCK_E), tl.float32)
        for start in range(0, splits, BLOCK_S):
            at = (start + split)[:, None] * n_weights + element[None, :]
            mask = (start + split < splits)[:, None] & (element < n_weights)[None, :]
            parts += tl.load(weight_sums + at, mask=mask, other=0.0)
        channel = element % columns
        tap = element // columns // GROWTH
        out = element // columns % GROWTH
        within = tap * reads + channel if LAST else channel * 9 + tap
        tl.store(
            gradient + weight_place + out * (9 * reads) + within,
            tl.sum(parts, 0),
            mask=(channel < reads) & (element < n_weights),
        )
    else:
        channel = (program - weight_programs) * BLOCK_E + tl.arange(0, BLOCK_E)
        d_shift = tl.zeros((BLOCK_S, BLOCK_E), tl.float32)
        d_scale = tl.zeros((BLOCK_S, BLOCK_E), tl.float32)
        total = tl.zeros((BLOCK_S, BLOCK_E), tl.float32)
        products = tl.zeros((BLOCK_S, BLOCK_E), tl.float32)
        for start in range(0, splits, BLOCK_S):
            mask = (start + split < splits)[:, None] & (channel < columns)[None, :]
            at = sums + (start + split)[:, None] * (4 * columns) + channel[None, :]
            d_shift += tl.load(at, mask=mask, other=0.0)
            d_scale += tl.load(at + columns, mask=mask, other=0.0)
            if FIRST:
                total += tl.load(at + 2 * columns, mask=mask, other=0.0)
                products += tl.load(at + 3 * columns, mask=mask, other=0.0)
        read = channel < reads
        shift_slope = tl.sum(d_shift, 0)
        scale_slope = tl.sum(d_scale, 0)
        tl.store(gradient + scale_place + channel, scale_slope, mask=read)
        tl.store(gradient + scale_place + all_reads + channel, shift_slope, mask=read)
        scale = tl.load(affine + channel, mask=read, other=0.0).to(tl.float32)
        if FIRST:
            total_before = tl.sum(total, 0)
            products_before = tl.sum(products, 0)
        else:
            total_before = tl.load(totals + channel, mask=read, other=0.0)
            products_before = tl.load(totals + all_channels + channel, mask=read, other=0.0)
        tl.store(totals + channel, total_before + scale * shift_slope, mask=read)
        tl.store(totals + all_channels + channel, products_before + scale * scale_slope, mask=read)
