"""A dense block by its kernels, run by Triton's interpreter, against the same block by plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, relu

from unbag_experiments.kernels import dense_block as dense

SMALL = dense.Tuning(
    forward_positions=16, forward_programs=3, backward_positions=16, backward_channels=32, backward_programs=3,
    plain_elements=512, plain_programs=3, sum_elements=2048,
)  # fmt: skip
"""Several tiles and programs even for few positions."""


def _parameters(seed: int, c0: int, growth: int, layers: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    reads = [c0 + layer * growth for layer in range(layers)]
    weights = [torch.randn(growth, width, 3, 3, generator=random) * (9 * width) ** -0.5 for width in reads]
    scales = [1 + 0.5 * torch.randn(width, generator=random) for width in reads]
    shifts = [0.5 * torch.randn(width, generator=random) for width in reads]
    return [*weights, *scales, *shifts]


def _by_torch(x: Tensor, *parameters: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return what dense_block should, and the input of the relu that is nearest to its kink."""
    layers = len(parameters) // 3
    nearest = torch.tensor(1.0)
    for layer in range(layers):
        weight, scale, shift = parameters[layer::layers]
        before = batch_norm(x, None, None, scale, shift, training=True, eps=1e-5)
        nearest = torch.minimum(nearest, before.abs().min())
        x = torch.cat([x, conv2d(relu(before), weight, padding=1)], 1)
    xhat = batch_norm(x, None, None, training=True, eps=1e-5)
    return [xhat, x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)], nearest


def _by_kernels(x: Tensor, *parameters: Tensor) -> list[Tensor]:
    layers = len(parameters) // 3
    parts = [list(parameters[start : start + layers]) for start in (0, layers, 2 * layers)]
    return list(dense.dense_block(x, *parts, tuning=SMALL))


def _errors(
    shape: tuple[int, int, int, int], growth: int, layers: int, dtype: torch.dtype = torch.float32, last: bool = True
) -> list[float]:
    """Return the distances of outputs and all slopes from those in double precision, relative to their sizes."""
    for seed in range(20):
        parameters = _parameters(seed, shape[1], growth, layers)
        random = torch.Generator().manual_seed(seed)
        x = (0.5 + 2 * torch.randn(shape, generator=random)).to(dtype)
        slope = torch.randn(shape[0], shape[1] + layers * growth, *shape[2:], generator=random).to(dtype)
        exact = [part.double().requires_grad_() for part in (x, *parameters)]
        wanted, nearest = _by_torch(*exact)
        if nearest > 1e-5:  # else rounding decides which way a slope goes
            break
    wanted += torch.autograd.grad(wanted[0], exact, slope.double())
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
        slope = slope.contiguous(memory_format=torch.channels_last)
        parameters[:layers] = [part.contiguous(memory_format=torch.channels_last) for part in parameters[:layers]]
    given = [part.clone().requires_grad_() for part in (x, *parameters)]
    found = _by_kernels(*given)
    assert not found[1].requires_grad
    assert not found[2].requires_grad
    found += torch.autograd.grad(found[0], given, slope)
    assert [part.shape for part in found] == [part.shape for part in wanted]
    assert {part.dtype for part in (found[0], found[3])} == {dtype}
    return [
        float((one.detach() - other.detach()).norm() / other.detach().norm())
        for one, other in zip(found, wanted, strict=True)
    ]


@pytest.mark.parametrize(
    ("shape", "growth", "layers", "last"),
    [
        ((3, 20, 5, 6), 12, 3, True),
        ((2, 24, 4, 3), 12, 2, False),
        ((1, 7, 3, 4), 5, 1, False),
        ((2, 16, 4, 4), 16, 2, True),
        ((5, 9, 1, 3), 3, 2, True),
    ],
)
def test_outputs_and_slopes_are_those_of_the_block_by_torch(
    shape: tuple[int, int, int, int], growth: int, layers: int, last: bool
) -> None:
    assert max(_errors(shape, growth, layers, last=last)) < 1e-5


def test_numbers_in_half_precision_differ_by_their_rounding_only() -> None:
    values = 3
    errors = _errors((4, 24, 4, 4), 12, 2, torch.bfloat16)
    assert max(errors[:values]) < 0.01
    # Rounding moves some inputs of the relu across its kink: slopes differ more than values.
    assert max(errors[values:]) < 0.08


def test_channels_are_side_by_side_in_memory() -> None:
    x = torch.randn(2, 24, 3, 4)
    xhat = _by_kernels(x, *_parameters(0, 24, 12, 3))[0]
    assert xhat.stride() == (3 * 4 * 64, 1, 4 * 64, 64)


def test_a_slope_of_any_layout_is_taken() -> None:
    given = [part.requires_grad_() for part in (torch.randn(2, 8, 3, 3), *_parameters(1, 8, 4, 2))]
    slopes = [
        torch.autograd.grad(output, given)
        for xhat in [_by_kernels(*given)[0]]
        for output in [xhat.square().mean((2, 3)).sum()]
    ]
    wanted = torch.autograd.grad(_by_torch(*given)[0][0].square().mean((2, 3)).sum(), given)
    for found, other in zip(slopes[0], wanted, strict=True):
        torch.testing.assert_close(found, other, atol=1e-5, rtol=1e-3)


def test_parameters_that_do_not_fit_are_refused() -> None:
    weights, scale, shift = _parameters(0, 8, 4, 1)
    x = torch.randn(2, 9, 3, 3)
    with pytest.raises(ValueError, match="layer 0 should read 9 channels"):
        dense.dense_block(x, [weights], [scale], [shift])
    with pytest.raises(ValueError, match="each layer needs a weight, a scale and a shift"):
        dense.dense_block(x, [weights], [], [shift])
