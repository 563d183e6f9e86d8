"""Dropout by a hash: its share, its independence, and that a replica draws beside others what it draws alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from training_problems import COLUMNS, assert_identical, network, pairs_problem, weights_of

from unbag.training import Checkpoint, Settings, TimeBudgetExceeded, train
from unbag.training.replicas import Replicas
from unbag_experiments.dropout import ColumnDropout

SETTINGS = Settings(epochs=3, batch_size=6, learning_rate=0.02)


def masks(p=0.2, seed=0, steps=20, shape=(200, 50)):
    dropout = ColumnDropout(p, seed)
    return torch.stack([dropout(torch.ones(shape)) == 0 for _ in range(steps)]).double()


def make(seed):
    return nn.Sequential(ColumnDropout(0.5, seed), network(3))


@pytest.mark.parametrize("p", [0.05, 0.2, 0.5, 0.9])
def test_so_many_columns_are_left_out_and_the_others_make_up_for_them(p):
    found = masks(p)
    deviation = (p * (1 - p) / found.numel()) ** 0.5
    assert abs(found.mean().item() - p) < 4 * deviation
    kept = ColumnDropout(p, 3)(torch.full((500, 40), 2.0))
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(2.0).div(1 - p).item()}


@pytest.mark.parametrize("apart", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_steps_rows_and_columns_are_independent(apart):
    found = masks() - 0.2
    shifted = found
    for dim, by in enumerate(apart):
        shifted = shifted.roll(by, dim)
    assert abs((found * shifted).mean().item()) < 4 * 0.16 / found.numel() ** 0.5


def test_seeds_near_each_other_have_nothing_in_common():
    first, second = masks(seed=100_001) - 0.2, masks(seed=100_002) - 0.2
    assert abs((first * second).mean().item()) < 4 * 0.16 / first.numel() ** 0.5


def test_nothing_is_left_out_of_predictions():
    dropout = ColumnDropout(0.5, 0).eval()
    rows = torch.randn(5, 3)
    assert dropout(rows) is rows
    assert dropout.step == 0


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_refuses_shares_that_are_none(p):
    with pytest.raises(ValueError, match="p must be"):
        ColumnDropout(p, 0)


def test_at_once_is_the_same_as_in_turn():
    replicas = Replicas([make(3), make(4)])
    X = torch.randn(2, 9, COLUMNS)
    in_turn = replicas.run_in_turn(X)
    assert replicas.state["0.step"].tolist() == [1, 1]
    replicas.state["0.step"].zero_()
    at_once = replicas.run_at_once(X)
    assert replicas.state["0.step"].tolist() == [1, 1]
    torch.testing.assert_close(at_once, in_turn)


def test_a_replica_draws_alone_what_it_draws_beside_others():
    X, seen = pairs_problem()
    seeds = [5, 6, 7]
    together = train([partial(make, seed) for seed in seeds], X, [seen], SETTINGS, seeds=seeds)
    for place, seed in enumerate(seeds):
        alone = train(partial(make, seed), X, [seen], SETTINGS, seeds=[seed])
        mine, theirs = weights_of(together.models[place]), weights_of(alone.models[0])
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
        assert theirs["0.step"] == 3 * 4  # epochs, steps
    other = train(partial(make, 8), X, [seen], SETTINGS, seeds=[7])
    assert not torch.allclose(weights_of(other.models[0])["1.0.weight"], theirs["1.0.weight"], atol=1e-3)


def test_a_run_that_goes_on_draws_what_it_would_have_drawn(tmp_path):
    X, seen = pairs_problem()
    makers = [partial(make, seed) for seed in (1, 2)]
    whole = train(makers, X, [seen], SETTINGS, seeds=[1, 2])
    for _ in range(3):
        with pytest.raises(TimeBudgetExceeded):
            train(makers, X, [seen], SETTINGS, seeds=[1, 2], checkpoint=Checkpoint(tmp_path, until=0))
    continued = train(makers, X, [seen], SETTINGS, seeds=[1, 2], checkpoint=Checkpoint(tmp_path))
    assert_identical(whole, continued)
    assert_identical(whole, train(makers, X, [seen], replace(SETTINGS), seeds=[1, 2]))
