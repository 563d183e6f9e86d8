"""Bags in which few instances are positive: their ranking, the probabilities of instances, and what is selected."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import unbag
from unbag import AggregateClassifier, Groups
from unbag._kernels.segments import Segments
from unbag.data.bags import SHARES, pool_scores, select_top


def draw_bags(n_bags=160, n_columns=40, share=0.05, seed=0):
    """Return rows with a shift of each bag, their labels and groups, and the labels of bags."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 120, n_bags)
    groups = Groups.from_sizes(sizes.tolist())
    bag = np.repeat(np.arange(n_bags), sizes)
    X = rng.normal(size=(len(bag), n_columns)) + 0.3 * rng.normal(size=(n_bags, n_columns))[bag]
    labels = np.zeros(len(bag), dtype=int)
    for number in np.flatnonzero(rng.random(n_bags) < 0.4):
        members = np.flatnonzero(bag == number)
        labels[rng.choice(members, max(1, round(share * len(members))), replace=False)] = 1
    X[labels == 1] += 4 * np.eye(n_columns)[0]
    return X, labels, groups, np.maximum.reduceat(labels, groups.offsets[:-1].numpy())


def test_bags_with_few_positive_instances_are_ranked_and_probabilities_of_instances_are_calibrated(tmp_path):
    X, _, groups, z = draw_bags()
    clf = AggregateClassifier("multiple_instance", model="linear", random_state=0, n_jobs=1).fit(X, z, groups=groups)
    assert any(c["model"].startswith("top-") for c in clf.candidates_)
    X, labels, groups, z = draw_bags(seed=1)
    assert roc_auc_score(z, clf.predict_groups(X, groups)) > 0.95
    positive = clf.predict_proba(X)[:, 1]
    assert roc_auc_score(labels, positive) > 0.95
    part = np.digitize(positive, np.linspace(0, 1, 11))
    error = sum(abs((positive - labels)[part == number].sum()) for number in range(12)) / len(labels)
    assert error < 0.05
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X[:50]), clf.predict_proba(X[:50]))


@pytest.mark.parametrize("share", SHARES)
def test_selected_members_have_the_largest_scores_of_their_group(share):
    generator = torch.Generator().manual_seed(0)
    sizes = [1, 7, 40, 3]
    scores = torch.randn(sum(sizes), generator=generator)
    segments = Segments.from_sizes(torch.tensor(sizes))
    selected, means = select_top(scores, segments, share), pool_scores(scores, segments)
    for number, (part, flags) in enumerate(zip(scores.split(sizes), selected.split(sizes), strict=True)):
        n = max(1, round(share * len(part)))
        assert sorted(part[flags].tolist()) == sorted(part.tolist())[-n:]
        torch.testing.assert_close(means[number, SHARES.index(share)], part[flags].mean())
