"""Replicas that have stopped take no further part, and what cannot reach a score is given up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unbag
from unbag.out_of_fold import fit_mixture
from unbag.training import Observations, Settings, held_out_likelihood, train
from unbag.training.architectures import Linear
from unbag.training.best import OutOfReach, Plateau


@pytest.mark.parametrize("sizes", [[3] * 20, [2, 4] * 10])
def test_replicas_learn_the_same_beside_one_that_has_stopped(sizes):
    random = torch.Generator().manual_seed(0)
    X, z = torch.randn(60, 2, generator=random), torch.zeros(20, 2, dtype=torch.int64)
    z[:, 0] = (X[:, 0] > 0).long().split(sizes)[0].sum() % 2
    z[:, 1] = torch.tensor(sizes) - z[:, 0]
    seen = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes(sizes), z, 2)

    def learn(stops_at):
        def stopping(best, history):
            return torch.tensor([len(history) >= stops_at, False])

        settings = Settings(epochs=5, warm_up=5, batch_size=5)
        models = [lambda: Linear(2, 2)] * 2
        return train(models, X, [seen], settings, seeds=[0, 1], score=held_out_likelihood(X, [seen]), stopping=stopping)

    early, late = learn(2), learn(9)
    torch.testing.assert_close(early.models[1].state_dict(), late.models[1].state_dict())
    assert len({entry["loss"][0] for entry in early.history[1:]}) == 1
    assert len({entry["loss"][0] for entry in late.history}) == 5


def test_what_still_rises_fast_enough_is_not_given_up():
    rising = [{"score": [-8.0 / (epoch + 1)]} for epoch in range(20)]
    assert not OutOfReach(-0.05, 200, 20)(None, rising)
    flat = [{"score": [-1.0]}] * 20
    assert OutOfReach(-0.99, 200, 20)(None, flat)
    assert not OutOfReach(-0.99, 200, 21)(None, flat)
    assert OutOfReach(-2.0, 200, 20, Plateau(5))(None, flat)  # the other rule is followed
    assert not OutOfReach(-2.0, 200, 20)(None, [{"score": [np.nan, -3.0]}] * 20)


def test_a_plateau_of_the_loss_ends_what_has_no_score():
    def history(*losses):
        return [{"score": None, "loss": [loss, 1.0]} for loss in losses]

    rule = Plateau(2)  # the first replica must fall by 0.05 * (1 + loss) in two epochs
    assert rule(None, history(2.0, 1.5)) is False
    assert rule(None, history(2.0, 1.5, 1.8)).tolist() == [False, True]
    assert rule(None, history(2.0, 1.5, 1.45, 1.42)).tolist() == [True, True]
    assert rule(None, history(2.0, 1.5, 1.45, 1.37)).tolist() == [False, True]


@pytest.mark.parametrize(("model", "patience", "most"), [("mlp", 10, 200), ("trees", 30, 300)])
def test_models_without_left_out_groups_learn_until_the_loss_falls_no_more(model, patience, most):
    """Ten groups, of which none is held out: blobs far apart are soon learned, and overlapping ones take longer."""

    def rounds(distance):
        random = np.random.default_rng(0)
        labels = random.integers(0, 2, 200)
        X = random.normal(size=(200, 2)) + distance * labels[:, None]
        groups = unbag.Groups.from_sizes([20] * 10)
        z = unbag.LabelProportions().observe(labels, groups, 2)
        clf = unbag.AggregateClassifier(model=model, random_state=0).fit(X, z, groups=groups)
        assert clf.history_[-1]["score"] is None
        return clf.n_iter_

    assert patience < rounds(8.0) <= rounds(1.0) < most


def test_a_candidate_without_a_result_is_not_chosen():
    seen = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes([2]), [[1, 1]], 2)
    good, lost = torch.full((2, 2), 0.5).log(), torch.full((2, 2), torch.nan)
    assert fit_mixture([seen], [[lost], [good]]) == [0, 1]
