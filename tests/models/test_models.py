"""Models: shapes, sizes worked out by hand, stacked replicas against single ones, and what is refused."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from unbag.learners.architectures import MLP, MODELS, RBF, Linear, OneLogit, build, n_outputs

STACKABLE = {
    "linear": (lambda: Linear(7, 3), (7,)),
    "logistic": (lambda: OneLogit(Linear(7, 1)), (7,)),
    "mlp": (lambda: MLP(7, 3, hidden=(5, 4)), (7,)),
    "rbf": (lambda: RBF(7, 3, units=5), (7,)),
}


def seeded(make, seed):
    torch.manual_seed(seed)
    return make()


def equal(one, other):
    states = [list(model.state_dict().values()) for model in (one, other)]
    return all(torch.equal(a, b) for a, b in zip(*states, strict=True))


@pytest.mark.parametrize(
    ("name", "n_classes"), [(name, k) for name in MODELS for k in (2, 5) if (name, k) != ("logistic", 5)]
)
def test_logits_have_a_column_for_each_class_and_follow_the_seed(name, n_classes):
    make = build(name, (7,), n_classes)
    assert make()(torch.randn(3, 7)).shape == (3, n_classes)
    assert equal(seeded(make, 1), seeded(make, 1))
    assert not equal(seeded(make, 1), seeded(make, 2))
    assert set(MODELS) == set(STACKABLE)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_images_are_read_as_flat_rows(name):
    model = seeded(build(name, (2, 3, 4), 5), 0)
    flat = seeded(build(name, (24,), 5), 0)
    X = torch.randn(6, 2, 3, 4)
    assert torch.equal(model(X), flat(X.flatten(1)))


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


@pytest.mark.parametrize("model", ["mlp", nn.Linear(7, 3), lambda: nn.Linear(7, 3)])
def test_building_leaves_random_numbers_alone(model):
    torch.manual_seed(0)
    build(model, (7,), 3)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert drawn == torch.rand(1)


def test_copies_of_a_module_start_anew_and_it_stays_as_it_is():
    given = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    given[1].running_mean.fill_(7)
    before = copy.deepcopy(given)
    make = build(given, (4,), 3)
    models = [seeded(make, 1), seeded(make, 2), seeded(make, 1)]
    assert equal(given, before)
    assert not equal(models[0], given)
    assert not equal(models[0], models[1])
    assert equal(models[0], models[2])
    assert (models[0][1].running_mean == 0).all()


class WithToken(nn.Module):
    """A parameter of its own, which nothing can reset."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.full((4,), 5.0))
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x + self.token))


def test_what_is_frozen_or_cannot_be_reset_is_kept():
    given = WithToken()
    given.body.requires_grad_(False)
    model = build(given, (4,), 3)()
    assert torch.equal(model.token, given.token)
    assert torch.equal(model.body.weight, given.body.weight)
    assert not model.body.weight.requires_grad
    assert not torch.equal(model.head.weight, given.head.weight)


def test_a_function_can_keep_given_weights():
    given = nn.Linear(4, 3)
    model = build(lambda: copy.deepcopy(given), (4,), 3)()
    assert equal(model, given)
    assert model is not given


def test_the_trial_leaves_a_model_as_it_is():
    given = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
    given[1].eval()
    before = copy.deepcopy(given)
    assert n_outputs(given, (4,)) == 3
    assert equal(given, before)
    assert [part.training for part in given] == [True, False, True, True]
    with pytest.raises(ValueError, match="fails on rows of shape"):
        n_outputs(given, (6,))
    assert [part.training for part in given] == [True, False, True, True]


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_modules_learn_their_shape():
    model = build(nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(3)), (4,), 3)()
    assert [tuple(weight.shape) for weight in model.parameters()] == [(5, 4), (5,), (3, 5), (3,)]


@pytest.mark.parametrize("net", [nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))])
def test_one_logit_is_logistic(net):
    model = build(lambda: copy.deepcopy(net), (4,), 2)()
    assert isinstance(model, OneLogit)
    X = torch.randn(6, 4)
    positive = net(X).reshape(-1).sigmoid()
    torch.testing.assert_close(model(X).softmax(1), torch.stack([1 - positive, positive], 1))


REFUSED = {
    r"one of linear, logistic, mlp, rbf, .*trees, a module, .*; got 'resnet'": ("resnet", (4,), 3),
    r"at least one feature, got rows of shape \(\)": ("mlp", (), 3),
    r"at least one feature, got rows of shape \(0,\)": ("mlp", (0,), 3),
    "n_classes must be a whole number of at least 2, got 1": ("mlp", (4,), 1),
    "the model has 1 output, but there are 3 classes; .* 3 outputs": ("logistic", (4,), 3),
    "the model has 5 outputs, but there are 3 classes; .* 3 outputs": (nn.Linear(4, 5), (4,), 3),
    "has 1 output, but there are 3 classes; .* 3 outputs": (nn.Linear(4, 1), (4,), 3),
    "5 outputs, but there are 2 classes; .* 2 outputs, or 1 for the log-odds": (nn.Linear(4, 5), (4,), 2),
    r"fails on rows of shape \(6,\): mat1 and mat2": (nn.Linear(4, 3), (6,), 3),
    r"one row of logits for each row.*got torch.float32 of shape \(2, 2, 3\)": (nn.Linear(4, 3), (2, 4), 3),
    r"one row of logits for each row.*got torch.float32 of shape \(8,\)": (nn.Flatten(0), (4,), 3),
    "one row of logits for each row.*got tuple": (nn.GRU(4, 3), (4,), 3),
    "model must be one of linear, logistic, mlp, rbf, .*trees, a module, .*; got int": (7, (4,), 3),
    "must run without arguments: .*in_features": (nn.Linear, (4,), 3),
    "must return a torch.nn.Module, got str": (lambda: "mlp", (4,), 3),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(*REFUSED[message])
