"""Scale, shift, rectifier and pooling in one kernel, against torch's; Triton's interpreter stands in for a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import avg_pool2d, relu

from unbag_experiments.kernels.rectify_and_pool import rectify_and_pool

SHAPES = {"two by two": ((3, 5, 4, 6), 8, 2), "whole image": ((9, 7, 4, 4), 16, 4), "many": ((5, 3, 8, 8), 3, 2)}


@pytest.mark.parametrize(("shape", "stride", "size"), SHAPES.values(), ids=SHAPES)
def test_values_and_slopes_are_those_of_the_layers(shape, stride, size):
    torch.manual_seed(0)
    n, channels, height, width = shape
    memory = torch.randn(n, height, width, stride)  # places between pixels that no channel takes
    xhat = memory[..., :channels].permute(0, 3, 1, 2).requires_grad_()
    scale, shift = torch.randn(channels).requires_grad_(), torch.randn(channels).requires_grad_()
    found = rectify_and_pool(xhat, scale, shift, size)
    expected = avg_pool2d(relu(xhat * scale[:, None, None] + shift[:, None, None]), size)
    torch.testing.assert_close(found, expected)
    slope = torch.randn_like(expected)
    inputs = (xhat, scale, shift)
    ours, theirs = (torch.autograd.grad(values, inputs, slope) for values in (found, expected))
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their, rtol=1e-4, atol=1e-5)
