"""Observations are checked where they enter, and not again by what follows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems_of_groups import blobs

import unbag
from unbag import Groups
from unbag.training import Observations, Settings, held_out_likelihood, train

N_GROUPS = 40


class Counting(unbag.LabelProportions):
    """Counts of classes, which count how often whole sets of them are checked."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[int] = []

    def check(self, z, groups, n_classes):
        self.checked.append(len(groups))
        return super().check(z, groups, n_classes)

    def calls(self) -> int:
        """Return how often more was checked than a few groups that something is tried on."""
        found, self.checked = [n for n in self.checked if n > 3], []
        return len(found)


@pytest.fixture
def problem():
    X, labels = blobs(n=3 * N_GROUPS, k=2)
    groups = Groups.from_sizes([3] * N_GROUPS)
    return X, groups, unbag.LabelProportions().observe(labels, groups, 2).numpy()


@pytest.mark.parametrize("settings", [{}, {"n_restarts": 2, "validation_fraction": 0.3}, {"validation_fraction": 0}])
def test_a_fit_checks_each_set_once(problem, settings):
    X, groups, z = problem
    first, second = Counting(), Counting()
    clf = unbag.AggregateClassifier(first, "mlp", epochs=2, random_state=0, **settings).fit(X, z, groups)
    assert first.calls() == 1
    clf.predict_groups(X, groups, z)
    assert first.calls() == 1
    clf.score(X, z, groups=groups)
    assert first.calls() == 1
    clf.disaggregate(X, z, groups)
    assert first.calls() == 1
    weights = np.arange(N_GROUPS) % 5
    both = unbag.AggregateClassifier([first, second], "mlp", epochs=2, random_state=0, **settings)
    both.fit(X, [z, z], [groups, groups], group_weights=[weights, None])
    assert (first.calls(), second.calls()) == (1, 1)


def test_a_run_of_the_loop_checks_nothing(problem):
    X, groups, z = problem
    seen = Observations(Counting(), groups, z, 2)
    kept, held_out = seen.to("cpu").split(0.5, torch.Generator().manual_seed(0))
    assert seen.aggregate.calls() == 1
    rows = torch.from_numpy(X).float()
    train(
        lambda: torch.nn.Linear(X.shape[1], 2),
        rows,
        [kept],
        Settings(epochs=2),
        seeds=[0, 1],
        score=held_out_likelihood(rows, [held_out]),
    )
    assert seen.aggregate.calls() == 0
    torch.testing.assert_close(kept.checked, seen.aggregate.check(kept.z, kept.groups, 2))
