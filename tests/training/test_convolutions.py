"""Convolutions as products, against those of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from unbag.training.convolutions import use_im2col

MODELS = {
    "two layers": (
        lambda: nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 5)),
        (3, 1, 28, 28),
    ),
    "stride and padding": (lambda: nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), (4, 3, 9, 8)),
}


@pytest.mark.parametrize(("make", "shape"), MODELS.values(), ids=MODELS)
def test_values_and_slopes_are_the_same(make, shape):
    torch.manual_seed(0)
    model = make().double()
    other = copy.deepcopy(model)
    use_im2col(other)
    found = []
    for one in (model, other):
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        outputs = one(x)
        slopes = torch.autograd.grad(outputs.square().sum(), [x, *one.parameters()])
        found.append([outputs, *slopes])
    torch.testing.assert_close(*found)
    kinds = [type(part) for part in other.modules()]
    assert nn.Conv2d not in kinds


def test_other_kinds_of_convolutions_are_left_alone():
    others = nn.Sequential(
        nn.Conv2d(9, 4, 3),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    )
    use_im2col(others)
    assert all(type(part) is nn.Conv2d for part in others)
