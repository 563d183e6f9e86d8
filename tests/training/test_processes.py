"""Several processes end where one does, whatever the sizes and numbers of groups of each, and if one is killed."""

import os
from functools import partial

import pytest
import torch
from torch import nn
from trained_together import difference, in_processes, kinds, observed, summarise, train_kind
from training_problems import network

from unbag.training import Settings, held_out_likelihood, train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

CLOSE = 2e-6


class Unused(nn.Module):
    """A network with a weight that it does not use, and that must not decay."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.net, self.unused = network(k), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.net(x)


def by_descent(batch_size, processes=None):
    """Train by plain steps, whose length is that of the gradient; of a single group, one process has none."""
    X, seen, k = observed("label_proportions")
    descent = partial(torch.optim.SGD, lr=0.1, weight_decay=0.1)
    settings = Settings(epochs=1, batch_size=batch_size)
    return summarise(train(partial(Unused, k), X, [seen], settings, optimiser=descent, processes=processes))


def with_folds(processes=None):
    """Train replicas on groups of their own, and stop them by groups that none of them is trained on."""
    X, seen, k = observed("multiple_instance")
    fold = torch.arange(len(seen.groups)) % 4
    used = [[seen.take((fold != number) & (fold != 3)) for number in range(3)]]
    settings = Settings(epochs=6, batch_size=5, patience=2, remember_from=1)
    score = held_out_likelihood(X, [seen.take(fold == 3)])
    return summarise(train(partial(network, k), X, used, settings, seeds=range(3), score=score, processes=processes))


def with_dropout(processes=None):
    X, seen, k = observed("label_proportions")
    settings = Settings(epochs=1, batch_size=8)
    return summarise(train(partial(network, k, nn.Dropout), X, [seen], settings, processes=processes))


def with_batch_norm(processes=None):
    X, seen, k = observed("label_proportions")
    return train(partial(network, k, partial(nn.BatchNorm1d, 6)), X, [seen], processes=processes)


TRAINED = {
    **{kind: partial(train_kind, kind) for kind in kinds()},
    "two replicas": partial(train_kind, "label_proportions", seeds=[0, 1]),
    "three replicas": partial(train_kind, "multiple_instance", seeds=[0, 1, 2]),
    "three replicas of pairs": partial(train_kind, "pairwise_similarity", seeds=[0, 1, 2]),
    "steps of four groups": partial(by_descent, 4),
    "steps of one group": partial(by_descent, 1),
    "folds": with_folds,
}


def train_all(processes):
    trained = {name: one(processes) for name, one in TRAINED.items()}
    trained["dropout"] = with_dropout(processes)
    try:
        with_batch_norm(processes)
    except ValueError as error:
        trained["batch norm"] = str(error)
    return trained


@pytest.fixture(scope="module")
def together():
    with_dropout()  # what torch imports at the first step is imported here
    return in_processes(2, train_all)


@pytest.mark.parametrize("name", TRAINED)
def test_two_processes_end_where_one_does(name, together):
    expected = TRAINED[name](None)
    for found in together:
        assert difference(found[name], expected) < CLOSE
        assert found[name]["best_epoch"] == expected["best_epoch"]
        if expected["best_score"] is not None:
            assert found[name]["best_score"] == pytest.approx(expected["best_score"], abs=1e-5)
        for entry, one in zip(found[name]["history"], expected["history"], strict=True):
            assert entry["loss"] == pytest.approx(one["loss"], abs=1e-5)


def test_both_processes_end_with_the_same_bits_also_with_dropout(together):
    for name in (*TRAINED, "dropout"):
        assert difference(together[0][name], together[1][name]) == 0
        assert together[0][name]["history"] == together[1][name]["history"]


def test_a_model_that_looks_across_rows_is_refused(together):
    assert "batch norm" in together[0]["batch norm"]
