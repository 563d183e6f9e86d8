"""Networks for images: sizes worked out by hand, stacked replicas against single ones, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import unbag
from unbag.learners.architectures import build
from unbag_experiments.networks import DenseNet, LeNet

INPUTS = {"lenet": (1, 28, 28), "densenet": (3, 32, 32)}

STACKABLE = {
    "lenet": (lambda: LeNet(3, channels=2, size=12), (2, 12, 12)),
    "densenet": (lambda: DenseNet(3, depth=7, growth=4, channels=1, norm="group"), (1, 8, 8)),
}


def n_parameters(model):
    return sum(weight.numel() for weight in model.parameters())


def seeded(make, seed):
    torch.manual_seed(seed)
    return make()


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("name", INPUTS)
def test_shape_of_logits(name, n_classes):
    model = build(name, INPUTS[name], n_classes)()
    assert model(torch.randn(3, *INPUTS[name])).shape == (3, n_classes)


@pytest.mark.parametrize(("name", "size"), [("lenet", 28), ("lenet", 32), ("lenet", 12), ("densenet", 8)])
def test_grey_images_need_no_channel(name, size):
    model = seeded(build(name, (size, size), 4), 0).eval()
    with_channel = seeded(build(name, (1, size, size), 4), 0).eval()
    X = torch.randn(2, size, size)
    assert torch.equal(model(X), with_channel(X[:, None]))


def test_densenet_reads_oblong_images():
    assert build("densenet", (1, 4, 9), 3)()(torch.randn(2, 1, 4, 9)).shape == (2, 3)


def test_size_of_lenet_by_hand():
    convolutions = (1 * 6 * 25 + 6) + (6 * 16 * 25 + 16)
    linear = (16 * 5 * 5 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10)
    assert n_parameters(LeNet(10)) == convolutions + linear == 61_706
    # 32 pixels in three channels: 32 -> 16 -> 12 -> 6
    assert n_parameters(LeNet(10, channels=3, size=32)) == 61_706 + 2 * 6 * 25 + 16 * (36 - 25) * 120


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_size_of_densenet_by_hand(norm):
    # A layer that reads c channels has 2 c numbers of its norm and 9 * 12 * c of its convolution.
    blocks = 110 * (24 + 36 + 48 + 60 + 72 + 84) + 110 * (48 + 60 + 72 + 84 + 96 + 108)
    blocks += 110 * (60 + 72 + 84 + 96 + 108 + 120)
    transitions = (2 * 96 + 96 * 48) + (2 * 120 + 120 * 60)
    ends = 3 * 24 * 9 + 2 * 132 + (132 * 10 + 10)
    model = DenseNet(10, norm=norm)
    assert n_parameters(model) == blocks + transitions + ends == 161_002
    layers = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert len(layers) == 22


@pytest.mark.parametrize("name", STACKABLE)
def test_stacked_replicas_are_the_single_models(name):
    make, shape = STACKABLE[name]
    models = [seeded(make, seed) for seed in range(3)]
    X = torch.randn(3, 4, *shape)
    template = copy.deepcopy(models[0]).to("meta")

    def loss(parameters, buffers, rows):
        return functional_call(template, (parameters, buffers), (rows,)).square().sum()

    parameters, buffers = stack_module_state(models)
    stacked = vmap(loss)(parameters, buffers, X)
    gradients = torch.autograd.grad(stacked.sum(), list(parameters.values()))
    for place, model in enumerate(models):
        single = model(X[place]).square().sum()
        torch.testing.assert_close(stacked[place], single)
        for gradient, expected in zip(gradients, torch.autograd.grad(single, model.parameters()), strict=True):
            torch.testing.assert_close(gradient[place], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "shape", "n_classes", "message"),
    [
        ("lenet", (784,), 3, r"'lenet' reads images.*got rows of shape \(784,\); reshape X"),
        ("densenet", (3072,), 3, r"'densenet' reads images.*got rows of shape \(3072,\); reshape X"),
        ("lenet", (1, 1, 28, 28), 3, r"'lenet' reads images.*got rows of shape \(1, 1, 28, 28\)"),
        ("lenet", (8, 8), 3, r"at least 12 x 12 pixels, channels first; got rows of shape \(8, 8\)"),
        ("densenet", (32, 32, 3), 3, r"at least 4 x 4 pixels, channels first.*transpose X if its channels come last"),
        ("lenet", (28, 30), 3, r"reads square images, got rows of shape \(28, 30\)"),
    ],
)
def test_refused(model, shape, n_classes, message):
    with pytest.raises(ValueError, match=message):
        build(model, shape, n_classes)


def test_refused_constructions():
    with pytest.raises(ValueError, match="size must be at least 12, got 11"):
        LeNet(10, size=11)
    for depth in (4, 23):
        with pytest.raises(ValueError, match=f"4 plus a multiple of 3, such as 22 or 40, got {depth}"):
            DenseNet(10, depth=depth)
    with pytest.raises(ValueError, match="norm must be one of batch, group; got 'layer'"):
        DenseNet(10, norm="layer")


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    return random.random((24, 1, 12, 12)).astype(np.float32), random.integers(0, 2, 24)


@pytest.mark.parametrize("model", INPUTS)
def test_networks_with_running_statistics_are_saved_by_name(images, model, tmp_path):
    X, labels = images
    classifier = unbag.AggregateClassifier(model=model, training=unbag.NetworkTraining(epochs=1), random_state=0).fit(
        X, labels
    )
    classifier.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
