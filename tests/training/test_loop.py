"""The loop against Algorithm 1 written plainly; its memory, its history, and what it refuses."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
import torch
from algorithm_1 import train_naively
from torch import nn
from training_problems import assert_close, assert_identical, bags, drawn, network, observe, pairs_problem, table

from unbag import FromFold, Groups
from unbag.objectives.losses import cross_entropy
from unbag.training import Observations, Settings, train

SHORT = Settings(epochs=4, batch_size=5, learning_rate=0.01)
PHASES = {
    "likelihood": {"warm_up": 4},
    "warm-up, then remembered": {"warm_up": 2, "remember_from": 2},
    "remembered before warm-up ends": {"warm_up": 2, "remember_from": 0},
    "current": {},
    "remembered": {"remember_from": 0},
    "current, then remembered": {"remember_from": 2},
    "warm-up, current, remembered": {"warm_up": 1, "remember_from": 3},
    "another loss": {"loss": "mae", "warm_up": 1, "remember_from": 2},
    "one group a step": {"batch_size": 1, "remember_from": 1},
    "one step an epoch": {"batch_size": 100, "remember_from": 1},
    "weight decay": {"weight_decay": 0.1, "warm_up": 2},
}


def pairs():
    X, seen = pairs_problem(n_groups=22)
    return 3, X, [seen]


def triplets():
    X, labels = table(20, 4)
    return 4, X, [observe("TripletComparison", labels, drawn(20, 13, 3), 4)]


def proportions():
    X, labels = table(24, 3)
    return 3, X, [observe("LabelProportions", labels, Groups.from_sizes([4] * 6), 3)]


def bags_of_unequal_sizes():
    X, labels = table(40, 2)
    return 2, X, [bags(labels)]


def counts_beside_labelled_rows():
    X, labels = table(30, 3)
    counts = observe("LabelProportions", labels, Groups.from_sizes([3, 5, 2, 4, 4, 1, 6, 5]), 3, weight=0.7)
    labelled = observe("LabelProportions", labels, Groups.from_tuples([[0], [7], [29]], n_rows=30), 3, weight=2.5)
    return 3, X, [counts, labelled]


def rows_shared_between_sets():
    X, labels = table(12, 3)
    pairs = observe("PairwiseSimilarity", labels, drawn(12, 17, 2), 3)
    triplets = observe("TripletComparison", labels, drawn(12, 9, 3, seed=1), 3, weight=0.5)
    counted = Groups.from_ids([0, 1, 1, 0, 2, 2, 2, 1, 0, 0, 2, 2])
    return 3, X, [pairs, triplets, observe("LabelProportions", labels, counted, 3, weight=3.0)]


PROBLEMS = [pairs, triplets, proportions, bags_of_unequal_sizes, counts_beside_labelled_rows, rows_shared_between_sets]


def agrees(problem, changes):
    k, X, sets = problem()
    settings = replace(SHORT, **changes)
    expected, losses = train_naively(partial(network, k), X, sets, settings, seed=3)
    trained = train(partial(network, k), X, sets, settings, seeds=[3])
    assert_close(trained.models[0], expected)
    assert [entry["loss"] for entry in trained.history] == [[pytest.approx(loss, abs=1e-5)] for loss in losses]


# ------------------------------------------------------------------------------------------------ Algorithm 1


@pytest.mark.parametrize("changes", PHASES.values(), ids=PHASES)
def test_agrees_with_the_plain_algorithm_in_every_phase(changes):
    agrees(pairs, changes)


@pytest.mark.parametrize("changes", [PHASES["warm-up, then remembered"], {}], ids=["remembered", "current"])
@pytest.mark.parametrize("problem", PROBLEMS[1:])
def test_agrees_with_the_plain_algorithm_on_every_problem(problem, changes):
    agrees(problem, changes)


def test_starts_from_the_weights_of_the_seed():
    X, seen = pairs_problem()
    # So slow that nothing moves.
    (model,) = train(partial(network, 3), X, [seen], Settings(epochs=1, learning_rate=1e-30), seeds=[7]).models
    torch.manual_seed(7)
    assert_close(model, network(3), tolerance=0)


def test_learns_single_instances_from_counts():
    X, labels = table(600, 3)
    seen = observe("LabelProportions", labels, Groups.from_sizes([5] * 120), 3)
    settings = Settings(epochs=60, batch_size=10, learning_rate=0.02)
    score = lambda predict: (predict(X).argmax(-1) == labels).double().mean(1)  # noqa: E731
    trained = train(partial(network, 3), X, [seen], settings, score=score)
    assert trained.best_score is not None
    assert trained.best_score[0] > 0.95


def test_models_come_back_ready_to_predict():
    X, seen = pairs_problem()
    trained = train(partial(network, 3, nn.Dropout), X, [seen], Settings(epochs=1), seeds=[0, 1])
    assert not any(part.training for model in trained.models for part in model.modules())
    assert all(parameter.requires_grad for model in trained.models for parameter in model.parameters())


# --------------------------------------------------------------------------------------------- random numbers


@pytest.mark.parametrize("seeds", [[3], [3, 4]])
def test_seeds_decide_everything_also_with_dropout(seeds):
    X, seen = pairs_problem()
    runs = []
    for outside in (1, 2):
        torch.manual_seed(outside)
        runs.append(train(partial(network, 3, nn.Dropout), X, [seen], Settings(epochs=2), seeds=seeds))
    assert_identical(*runs)


class Failing(nn.Dropout):
    """Fails in its third forward pass, after it has drawn."""

    error: type[BaseException] = RuntimeError
    left = 3

    def forward(self, x):
        drawn = super().forward(x)
        if self.training:
            self.left -= 1
        if not self.left:
            raise self.error
        return drawn


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_random_numbers_of_the_caller_are_left_alone_by_a_run_that_fails(error, monkeypatch):
    monkeypatch.setattr(Failing, "error", error)
    X, seen = pairs_problem()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(error):
        train(partial(network, 3, Failing), X, [seen], Settings(epochs=2, batch_size=5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("extra", [(), (nn.Dropout,)], ids=["plain", "dropout"])
def test_runs_in_threads_come_out_as_if_alone(extra):
    X, seen = pairs_problem()
    before = torch.get_rng_state()

    def run(seed):
        settings = Settings(epochs=4, batch_size=5)
        return train(partial(network, 3, *extra), X, [seen], settings, seeds=[seed, seed + 1])

    alone = [run(seed) for seed in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(run, range(8)))
    finally:
        sys.setswitchinterval(interval)
    for one, other in zip(alone, together, strict=True):
        assert_identical(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# ----------------------------------------------------------------------------------------------- wrong inputs


X15, PAIRS = pairs_problem()
FOUR_CLASSES = observe("PairwiseSimilarity", table(15, 4)[1], drawn(15, 4, 2), 4)
COUNTS = observe("LabelProportions", table(15, 3)[1], drawn(15, 4, 2), 3)
SHORT_LOSS = Settings(epochs=1, loss=lambda logits: cross_entropy(logits)[:, :1])


@pytest.mark.parametrize(
    ("sets", "arguments", "message"),
    [
        ([PAIRS], {"seeds": []}, "seeds is empty: give at least one seed"),
        ([], {}, "observations is empty: there is nothing to learn from"),
        ([PAIRS, FOUR_CLASSES], {}, "must have the same number of classes; got 3, 4"),
        ([[PAIRS, PAIRS]], {"seeds": [0, 1, 2]}, "shared by all 3 replicas or have an entry for each; got 2"),
        ([[PAIRS, COUNTS]], {"seeds": [0, 1]}, "the same aggregate and weight"),
        ([[PAIRS, replace(PAIRS, weight=2.0)]], {"seeds": [0, 1]}, "the same aggregate and weight"),
        (
            [FOUR_CLASSES],
            {},
            "a logit for each of 4 classes, shape (2, 4) for 2 rows; got torch.float32 of shape (2, 3)",
        ),
        (
            [PAIRS],
            {"settings": SHORT_LOSS},
            "one loss per row and class, shape (2, 3) for 2 rows; got torch.float32 of shape (2, 1)",
        ),
    ],
)
def test_refuses_arguments_that_do_not_fit(sets, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        train(partial(network, 3), X15, sets, **arguments)


def test_replicas_learn_from_different_numbers_of_groups_each_as_it_would_alone():
    X, seen = pairs_problem()
    fewer = seen.take(torch.arange(10))
    settings = Settings(epochs=4, batch_size=5)
    both = train(partial(network, 3), X, [[fewer, seen]], settings, seeds=[0, 1])
    alone = train(partial(network, 3), X, [seen], settings, seeds=[1])
    # Ten groups fill an epoch of four batches of five by being visited twice.
    twice = train(partial(network, 3), X, [fewer], replace(settings, epochs=8), seeds=[0])
    for one, other in ((both.models[1], alone.models[0]), (both.models[0], twice.models[0])):
        for name, tensor in one.state_dict().items():
            torch.testing.assert_close(tensor, other.state_dict()[name])


def test_folds_made_for_each_replica_may_number_their_outcomes_differently():
    X, labels = table(20, 3)
    folds = [FromFold((0, 0), count_and_add, above_one_each) for _ in range(2)]
    folds[1].check([0] * 5, Groups.from_sizes([4] * 5), 3)  # meets other outcomes first
    sets = []
    for seed, fold in enumerate(folds):
        groups = drawn(20, 10, 2, seed)
        sets.append(Observations(fold, groups, fold.observe(labels, groups, 3), 3))
    together = train(partial(network, 3), X, [sets], SHORT, seeds=[0, 1])
    for place, own in enumerate(sets):
        (alone,) = train(partial(network, 3), X, [own], SHORT, seeds=[place]).models
        assert_close(together.models[place], alone)


def count_and_add(state, label):
    return state[0] + 1, state[1] + label


def above_one_each(state):
    return state[1] - state[0]


# ------------------------------------------------------------------------------------------- other methods, scores


def likelihood_by_hand(outputs, groups, z):
    """Return the negative log-likelihood of pairs, from plain probabilities."""
    first, second = outputs.softmax(1).view(len(groups), 2, -1).unbind(1)
    equal = (first * second).sum(1)
    return -torch.where(z, equal, 1 - equal).log()


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_an_objective_of_ones_own_takes_the_place_of_the_algorithm(seeds):
    X, seen = pairs_problem()
    settings = Settings(epochs=3, batch_size=7)
    ours = train(partial(network, 3), X, [seen], settings, seeds=seeds, objective=likelihood_by_hand)
    theirs = train(partial(network, 3), X, [seen], replace(settings, warm_up=3), seeds=seeds)
    for one, other in zip(ours.models, theirs.models, strict=True):
        assert_close(one, other)


def test_an_objective_may_have_outputs_of_any_width():
    X, seen = pairs_problem()

    def apart(outputs, groups, z):
        first, second = outputs.view(len(groups), 2, -1).unbind(1)
        distance = (first - second).square().sum(1)
        return torch.where(z, distance, -distance)

    trained = train(partial(network, 5), X, [seen], Settings(epochs=1), objective=apart)
    assert trained.models[0](X).shape == (len(X), 5)
