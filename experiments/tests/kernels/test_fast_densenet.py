"""A DenseNet by kernels of our own, against the same by torch's layers; Triton's interpreter stands in for a GPU."""

from __future__ import annotations

import copy

import pytest
import torch

from unbag_experiments.kernels import fast_densenet
from unbag_experiments.kernels.fast_densenet import FastDenseNet, use_fast_densenet
from unbag_experiments.networks import DenseNet


@pytest.fixture
def pair(monkeypatch):
    """Return a model and its fast copy, which takes single precision too, so that the two can be compared."""
    torch.manual_seed(0)
    model = DenseNet(3, depth=7, growth=4)
    fast = copy.deepcopy(model)
    assert use_fast_densenet(fast)
    monkeypatch.setattr(fast_densenet.torch, "is_autocast_enabled", lambda device: True)
    return model, fast


def test_a_step_is_that_of_the_layers(pair):
    x = torch.randn(4, 3, 4, 4)
    found = []
    for model in pair:
        logits = model(x)
        logits.square().sum().backward()
        found.append((logits, [parameter.grad for parameter in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
    statistics = [list(model.buffers()) for model in pair]  # which move by a tenth
    torch.testing.assert_close(statistics[1], statistics[0], rtol=1e-5, atol=1e-6)


def test_predictions_are_those_of_the_layers(pair):
    model, fast = (one.eval() for one in pair)
    x = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(fast(x), model(x))


def test_only_models_with_batch_norm_run_fast():
    grouped = DenseNet(3, depth=7, growth=4, norm="group")
    assert not use_fast_densenet(grouped)
    assert type(grouped) is DenseNet
    averaged = DenseNet(3, depth=7, growth=4)
    averaged.features[-2].momentum = None  # statistics are means of all batches, which the kernels' side does not keep
    assert not use_fast_densenet(averaged)
    assert not use_fast_densenet(torch.nn.Linear(2, 2))


def test_oblong_images_take_the_layers_of_torch(pair):
    x = torch.randn(2, 3, 4, 9)
    model, fast = pair
    assert type(fast) is FastDenseNet
    torch.testing.assert_close(fast(x), model(x))
