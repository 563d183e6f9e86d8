"""Convolution, rectifier and pooling in one kernel, against torch's; Triton's interpreter stands in for a GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn.functional import conv2d, max_pool2d, relu

from unbag.training.convolutions import use_im2col
from unbag_experiments.kernels import convolve_and_pool, fuse_conv_relu_pool
from unbag_experiments.kernels.convolve_and_pool import ConvolveAndPool
from unbag_experiments.networks import LeNet

# The interpreter takes some 20 ms for each weight of an output: few channels, and small kernels where these will do.
SHAPES = {
    "first layer of LeNet": (1, 3, (1, 8, 8), 6, 5, 2),
    "more taps and places than a program has": (1, 30, (4, 9, 9), 16, 3, 0),
    "odd sizes": (2, 3, (2, 9, 7), 5, 3, 1),
    "even kernel": (1, 2, (1, 7, 8), 3, 4, 1),
}


def run(layer, x, weight, bias):
    """Run one layer for many replicas."""
    return torch.vmap(lambda x, w, b: functional_call(layer, {"weight": w, "bias": b}, (x,)))(x, weight, bias)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_slopes_are_those_of_the_three_layers(shape, monkeypatch):
    for name, few in (("_PARTS", 2), ("_MANY", 1)):  # so that all loops go round
        monkeypatch.setattr(convolve_and_pool, name, few)
    replicas, n, image, outputs, side, pad = shape
    torch.manual_seed(0)
    x = torch.randn(replicas, n, *image).requires_grad_()
    weight = torch.randn(replicas, outputs, image[0], side, side).requires_grad_()
    bias = torch.randn(replicas, outputs).requires_grad_()
    layer = ConvolveAndPool(image[0], outputs, side, padding=pad)
    found = run(layer, x, weight, bias)
    expected = torch.stack(
        [max_pool2d(relu(conv2d(x[i], weight[i], bias[i], padding=pad)), 2) for i in range(replicas)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    slope = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, (x, weight, bias), slope),
        torch.autograd.grad(expected, (x, weight, bias), slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_equal_outputs_pass_their_slope_to_the_first_and_outputs_that_are_not_positive_to_none():
    layer = ConvolveAndPool(1, 1, 1)
    x = torch.tensor([[2.0, 2.0, 0.0, -1.0], [2.0, 1.0, -3.0, 0.0]]).view(1, 1, 1, 2, 4).requires_grad_()
    run(layer, x, torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1)).sum().backward()
    assert x.grad.view(2, 4).tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]


def test_models_of_several_replicas_say_the_same_with_it():
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    models = [copy.deepcopy(nn.Sequential(*layers)) for _ in range(2)]
    for parameter in models[1].parameters():
        nn.init.normal_(parameter)
    parameters, _ = stack_module_state(models)
    joined = copy.deepcopy(models[0])
    assert fuse_conv_relu_pool(joined)
    use_im2col(joined)
    assert [type(part) for part in joined][:3] == [ConvolveAndPool, nn.Identity, nn.Identity]
    x = torch.randn(3, 1, 8, 8)
    found = torch.vmap(lambda state, x: functional_call(joined, state, (x,)))(
        parameters, x.expand(2, *x.shape)
    )  # the same rows for both, as when they predict
    expected = torch.stack([model(x) for model in models])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    expected.square().sum().backward()
    for name, stack in parameters.items():
        theirs = torch.stack([model.get_parameter(name).grad for model in models])
        torch.testing.assert_close(stack.grad, theirs, rtol=1e-4, atol=1e-5)


def test_all_of_lenet_is_joined():
    model = LeNet(10)
    assert fuse_conv_relu_pool(model)
    assert [type(part) for part in model.convolutions] == [ConvolveAndPool, nn.Identity, nn.Identity] * 2


def test_other_precisions_take_the_layers_of_torch():
    layer = ConvolveAndPool(1, 2, 3).double()
    x = torch.randn(2, 1, 6, 6, dtype=torch.float64)
    expected = max_pool2d(relu(conv2d(x, layer.weight, layer.bias)), 2)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 4, (3, 5)), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 4, 3, padding=(1, 0)), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(2)),
        (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(3)),
        (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
    ],
)
def test_what_it_does_not_compute_is_left_alone(layers):
    model = nn.Sequential(*layers)
    kinds = [type(part) for part in model]
    assert not fuse_conv_relu_pool(model)
    assert [type(part) for part in model] == kinds
