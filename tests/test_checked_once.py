"""Observations are checked where they enter, and not again by what follows."""

from __future__ import annotations

import numpy as np
import pytest
from problems_of_groups import blobs, fast

import unbag
from unbag import Groups
from unbag.training import Observations

N_GROUPS = 40
FAST = fast(epochs=2)


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


def test_a_checked_set_is_learned_from_as_it_is(problem):
    X, groups, z = problem
    weights = 1 + np.arange(N_GROUPS) % 5
    seen = Observations(Counting(), groups, z, 2, group_weights=weights)
    given = {"model": "linear", "random_state": 0}
    clf = unbag.AggregateClassifier(seen.aggregate, **given).fit(X, seen)
    assert seen.aggregate.calls() == 1
    same = unbag.AggregateClassifier(**given).fit(X, z, groups, group_weights=weights)
    np.testing.assert_array_equal(clf.predict_log_proba(X), same.predict_log_proba(X))
    with pytest.raises(ValueError, match="which holds its groups; leave groups= out"):
        clf.fit(X, seen, groups)
    with pytest.raises(ValueError, match=r"observations by Counting.*but aggregate is LabelProportions"):
        same.fit(X, seen)
    with pytest.raises(ValueError, match="checked for 2 classes, but there are 3"):
        clf.set_params(n_classes=3, aggregate="pairwise_similarity").fit(
            X, Observations(unbag.PairwiseSimilarity(), Groups.from_sizes([2] * 60), np.arange(60) % 2, 2)
        )
    with pytest.raises(ValueError, match="group_weights must not all be zero"):
        seen.with_weights(np.zeros(N_GROUPS))
