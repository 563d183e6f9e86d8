"""Replicas: each comes out as if it were alone, whatever runs beside it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from training_problems import (
    COLUMNS,
    assert_close,
    assert_identical,
    bags,
    drawn,
    network,
    observe,
    pairs_problem,
    table,
    weights_of,
)

from unbag import Groups
from unbag.data.scaling import Scaling
from unbag.training import Settings, held_out_likelihood, train
from unbag.training.replicas import Replicas, make_models

SEEDS = [5, 1, 8]
SETTINGS = Settings(epochs=4, warm_up=1, remember_from=2, batch_size=6, learning_rate=0.01)


def shared_pairs():
    X, seen = pairs_problem()
    return 3, X, [seen]


def shared_bags():
    X, labels = table(40, 2)
    return 2, X, [bags(labels)]


def own_pairs():
    X, labels = table(15, 3)
    return 3, X, [[observe("PairwiseSimilarity", labels, drawn(15, 20, 2, seed), 3) for seed in SEEDS]]


def own_bags_of_many_sizes():
    X, labels = table(40, 3)
    sizes = [[1, 2, 3, 4, 5, 6, 1], [2, 2, 9, 1, 1, 3, 3], [4] * 7]
    own = [observe("LabelProportions", labels, replace(Groups.from_sizes(one), n_rows=40), 3) for one in sizes]
    return 3, X, [own]


def own_pairs_beside_shared_labels():
    X, labels = table(15, 3)
    own = [observe("PairwiseSimilarity", labels, drawn(15, 20, 2, seed), 3) for seed in SEEDS]
    return 3, X, [own, observe("LabelProportions", labels, Groups.from_tuples([[3], [4]], 15), 3, weight=0.3)]


PROBLEMS = [shared_pairs, shared_bags, own_pairs, own_bags_of_many_sizes, own_pairs_beside_shared_labels]


def of_replica(sets, place):
    return [given[place] if isinstance(given, list) else given for given in sets]


def assert_each_as_if_alone(make_model, X, sets, settings=SETTINGS, score=None):
    together = train(make_model, X, sets, settings, seeds=SEEDS, score=score)
    for place, seed in enumerate(SEEDS):
        alone = train(make_model, X, of_replica(sets, place), settings, seeds=[seed], score=score)
        assert_close(together.models[place], alone.models[0])
        assert together.best_epoch[place] == alone.best_epoch[0]
        for entry, own in zip(together.history, alone.history, strict=False):
            assert entry["loss"][place] == pytest.approx(own["loss"][0], abs=1e-5)
    return together


# ------------------------------------------------------------------------------------------------ alone or not


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_comes_out_as_if_alone(problem):
    k, X, sets = problem()
    together = assert_each_as_if_alone(partial(network, k), X, sets)
    first, second = (weights_of(model)["0.weight"] for model in together.models[:2])
    assert not torch.allclose(first, second, atol=1e-2)


def test_each_comes_out_as_if_alone_where_the_best_epoch_is_chosen():
    X, labels = table(60, 3)
    seen = observe("PairwiseSimilarity", labels, drawn(60, 50, 2), 3)
    train_set, held_out = seen.split(0.4, torch.Generator().manual_seed(0))
    settings = replace(SETTINGS, epochs=12, learning_rate=0.1)
    score = held_out_likelihood(X, [held_out])
    together = assert_each_as_if_alone(partial(network, 3), X, [train_set], settings, score)
    assert len(set(together.best_epoch)) > 1


def test_patience_of_one_does_not_wait_for_another():
    # Alone, the first stops after epoch 3. Beside one that goes on, it must not take the better epoch that follows.
    X, seen = pairs_problem()
    scores = {5: [1.0, 0.0, 0.0, 9.0, 9.0], 1: [1.0, 2.0, 3.0, 4.0, 5.0]}

    def scripted(*seeds):
        epochs = iter(range(5))

        def score(_):
            epoch = next(epochs)
            return torch.tensor([scores[seed][epoch] for seed in seeds])

        return score

    settings = replace(SETTINGS, epochs=5, warm_up=0, patience=2)
    together = train(partial(network, 3), X, [seen], settings, seeds=[5, 1], score=scripted(5, 1))
    assert together.best_epoch == [0, 4]
    assert together.best_score == [1.0, 5.0]
    for place, seed in enumerate((5, 1)):
        alone = train(partial(network, 3), X, [seen], settings, seeds=[seed], score=scripted(seed))
        assert_close(together.models[place], alone.models[0])
        assert len(alone.history) == (3, 5)[place]


# -------------------------------------------------------------------------------------------- kinds of models


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, partial(nn.BatchNorm1d, track_running_stats=False)])
def test_models_that_learn_from_all_rows_of_a_step_are_trained_one_in_a_call(norm):
    X, labels = table(40, 2)
    make_model = partial(network, 2, partial(norm, 6))
    with pytest.raises(ValueError, match=r"batch norm .* for a single seed in a single process; call train once"):
        train(make_model, X, [bags(labels)], SETTINGS, seeds=[0, 1])
    first, second = (train(make_model, X, [bags(labels)], SETTINGS, seeds=[0]) for _ in range(2))
    assert_identical(first, second)


@pytest.mark.parametrize("n", [1, 2])
def test_half_precision_stays_inside_the_models(n):
    X, seen = pairs_problem()
    seeds = range(n)
    whole = train(partial(network, 3), X, [seen], SETTINGS, seeds=seeds)
    half = train(partial(network, 3), X, [seen], replace(SETTINGS, precision="bfloat16"), seeds=seeds)
    assert {tensor.dtype for model in half.models for tensor in weights_of(model).values()} == {torch.float32}
    for model, other in zip(whole.models, half.models, strict=True):
        assert_close(model, other, tolerance=0.1)
        assert not torch.equal(model[0].weight, other[0].weight)


def with_instance_norm():
    return nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, affine=True), nn.Flatten(), network(3))


class WithTable(nn.Module):
    """A model that scales by what it draws when it is made, and perhaps does not save it."""

    def __init__(self, persistent):
        super().__init__()
        self.net = network(3)
        self.register_buffer("factor", torch.rand(COLUMNS), persistent=persistent)

    def forward(self, x):
        return self.net(x * self.factor)


class Tied(nn.Module):
    """A model with one matrix in two places."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()).tanh())


def half_frozen():
    model = network(3)
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "make_model", [with_instance_norm, partial(WithTable, True), partial(WithTable, False), Tied, half_frozen]
)
def test_models_of_any_kind_come_out_as_if_alone(make_model, caplog):
    X, seen = pairs_problem()
    models = assert_each_as_if_alone(make_model, X, [seen]).models
    assert not caplog.records
    if isinstance(models[0], WithTable):  # buffers differ between replicas
        assert not torch.equal(models[0].factor, models[1].factor)
    if make_model is Tied:
        assert all(model.first.weight is model.second.weight for model in models)
    if make_model is half_frozen:
        for model, start in zip(models, make_models(half_frozen, SEEDS, X.device), strict=True):
            assert torch.equal(model[0].weight, start[0].weight)
            assert not torch.equal(model[2].weight, start[2].weight)


def resting_dropout():
    return nn.Dropout().eval()


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_parts_that_were_set_to_predict_stay_so(seeds):
    X, seen = pairs_problem()
    score = held_out_likelihood(X, [seen])
    resting = train(partial(network, 3, resting_dropout), X, [seen], SETTINGS, seeds=seeds, score=score)
    without = train(partial(network, 3, nn.Identity), X, [seen], SETTINGS, seeds=seeds, score=score)
    assert_identical(resting, without)


def with_offset(offset):
    """Return a network that reads rows less an offset, a buffer."""
    model = network(3)
    return nn.Sequential(Scaling(torch.full((COLUMNS,), offset), torch.ones(COLUMNS)), model)


def test_models_of_replicas_may_be_made_by_one_function_each():
    X, seen = pairs_problem()
    offsets, seeds = [0.0, 1.0, 2.0], [4, 4, 5]
    together = train([partial(with_offset, offset) for offset in offsets], X, [seen], SETTINGS, seeds=seeds)
    for model, offset, seed in zip(together.models, offsets, seeds, strict=True):
        alone = train(partial(with_offset, offset), X, [seen], SETTINGS, seeds=[seed])
        assert_close(model, alone.models[0])
        assert (weights_of(model)["0.shift"] == offset).all()
    with pytest.raises(ValueError, match="make_model must be a function, or a list of 3, one per seed; got 2"):
        train([partial(network, 3)] * 2, X, [seen], SETTINGS, seeds=SEEDS)


# ------------------------------------------------------------------------------------------------ the pieces


def convolutional():
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("shape", [(COLUMNS,), (1, 12, 12)], ids=["rows", "images"])
def test_at_once_is_the_same_as_in_turn(shape):
    """A GPU runs them at once, a processor in turn."""
    make = partial(network, 3) if len(shape) == 1 else convolutional
    replicas = Replicas(make_models(make, SEEDS, torch.device("cpu")))
    inputs = torch.randn(3, 5, *shape)
    found = []
    for run in (replicas.run_at_once, replicas.run_in_turn):
        outputs = run(inputs)
        found.append([outputs, *torch.autograd.grad(outputs.square().sum(), replicas.parameters())])
    torch.testing.assert_close(*found)


# ------------------------------------------------------------------------------------------------ accelerated


class Doubled(nn.Sequential):
    """Says twice what the same layers would say."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


@pytest.mark.parametrize("seeds", [[5], SEEDS])
def test_accelerate_exchanges_the_model_that_runs_and_no_other(seeds):
    X, seen = pairs_problem()
    given = []

    def accelerate(model, **how):
        given.append(how)
        return Doubled(*model)

    found = train(partial(network, 3), X, [seen], SETTINGS, seeds=seeds, accelerate=accelerate)
    expected = train(lambda: Doubled(*network(3)), X, [seen], SETTINGS, seeds=seeds)
    assert given == [{"replicas": len(seeds), "half": False}]
    for model, doubled in zip(found.models, expected.models, strict=True):
        assert type(model) is nn.Sequential
        assert_close(model, doubled)
