"""The moving average of weights: its formula, what is scored and kept, and replicas alone and side by side."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from training_problems import assert_identical, drawn, network, observe, pairs_problem, table, weights_of

from unbag.training import Settings, held_out_likelihood, train
from unbag.training.averaging import WeightAverage
from unbag.training.replicas import Replicas

SETTINGS = Settings(epochs=3, batch_size=5, learning_rate=0.05)


@pytest.mark.parametrize("n", [1, 3])
def test_the_first_steps_count_for_more_and_then_the_decay_holds(n):
    replicas = Replicas([nn.Linear(2, 2) for _ in range(n)])
    average = WeightAverage(replicas, 0.5)
    expected = {name: tensor.clone() for name, tensor in average.state.items()}
    for step in range(1, 20):
        with torch.no_grad():
            for tensor in replicas.parameters():
                tensor.add_(torch.randn_like(tensor))
        average.update()
        share = 1 - min(0.5, step / (step + 9))
        for name, tensor in replicas.snapshot().items():
            expected[name] += share * (tensor - expected[name])
            torch.testing.assert_close(average.state[name], expected[name])


def test_buffers_are_those_of_the_last_step():
    X, seen = pairs_problem()
    make = partial(network, 3, partial(nn.BatchNorm1d, 6))
    averaging = Settings(epochs=3, batch_size=5, learning_rate=0.05, averaging=0.9)
    plain, averaged = (train(make, X, [seen], settings).models[0] for settings in (SETTINGS, averaging))
    assert not torch.equal(plain[0].weight, averaged[0].weight)
    torch.testing.assert_close(averaged[1].running_mean, plain[1].running_mean)


def test_the_weights_of_the_steps_are_left_alone():
    X, seen = pairs_problem()
    averaging = Settings(epochs=3, batch_size=5, learning_rate=0.05, averaging=1e-9)  # all of the last step
    plain = train(partial(network, 3), X, [seen], SETTINGS)
    averaged = train(partial(network, 3), X, [seen], averaging)
    for one, other in zip(*(weights_of(run.models[0]).values() for run in (plain, averaged)), strict=True):
        torch.testing.assert_close(one, other)


def test_the_average_is_what_is_scored_and_kept():
    X, labels = table(40, 3)
    learned, held_out = observe("PairwiseSimilarity", labels, drawn(40, 30, 2), 3).split(
        0.3, torch.Generator().manual_seed(0)
    )
    score = held_out_likelihood(X, [held_out])
    settings = Settings(epochs=5, batch_size=5, learning_rate=0.1, averaging=0.95)
    trained = train(partial(network, 3), X, [learned], settings, seeds=[0, 1], score=score)
    with torch.no_grad():
        again = score(lambda rows: torch.stack([model(rows) for model in trained.models]))
    torch.testing.assert_close(again, torch.tensor(trained.best_score, dtype=torch.float64))


def test_a_replica_is_averaged_alone_as_beside_others():
    X, seen = pairs_problem()
    settings = Settings(epochs=3, batch_size=5, learning_rate=0.05, averaging=0.9, steps=7)
    both = train(partial(network, 3), X, [seen], settings, seeds=[0, 1])
    for place, seed in enumerate([0, 1]):
        alone = train(partial(network, 3), X, [seen], settings, seeds=[seed])
        for one, other in zip(
            weights_of(both.models[place]).values(), weights_of(alone.models[0]).values(), strict=True
        ):
            torch.testing.assert_close(one, other)


def test_a_run_with_an_average_is_the_same_every_time():
    X, seen = pairs_problem()
    settings = Settings(epochs=2, batch_size=5, averaging=0.9)
    first, second = (train(partial(network, 3), X, [seen], settings) for _ in range(2))
    assert_identical(first, second)


def test_decoupled_decay_is_that_of_adamw():
    X, seen = pairs_problem()
    settings = Settings(epochs=2, batch_size=5, learning_rate=0.05, weight_decay=0.5, decoupled=True)
    ours = train(partial(network, 3), X, [seen], settings).models[0]
    adamw = partial(torch.optim.AdamW, lr=0.05, weight_decay=0.5)
    theirs = train(partial(network, 3), X, [seen], Settings(epochs=2, batch_size=5), optimiser=adamw).models[0]
    for one, other in zip(weights_of(ours).values(), weights_of(theirs).values(), strict=True):
        torch.testing.assert_close(one, other)
