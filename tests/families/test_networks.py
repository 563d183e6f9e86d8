"""Networks that begin with a guess of the classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from unbag import AggregateClassifier, Groups, PairwiseSimilarity
from unbag.families.networks import _learn_guess


def blobs():
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 4
    return (8 * np.eye(4)[labels] + rng.normal(size=(240, 4))).astype(np.float32), labels


def test_a_guess_is_that_of_clusters():
    X, labels = blobs()
    model = _learn_guess(lambda: nn.Linear(4, 4), torch.from_numpy(X), 4, seed=0)
    found = model(torch.from_numpy(X)).argmax(1).numpy()
    assert len({*zip(found.tolist(), labels.tolist(), strict=True)}) == 4  # one class for each cluster
    again = _learn_guess(lambda: nn.Linear(4, 4), torch.from_numpy(X), 4, seed=1)
    assert not torch.equal(model.weight, again.weight)
    assert all(weight.grad is None for weight in model.parameters())


def test_every_second_restart_begins_with_clusters_where_classes_are_unnamed():
    X, labels = blobs()
    groups = Groups.from_tuples(
        np.random.default_rng(1).permuted(np.tile(np.arange(240), (2, 1)), axis=1).reshape(-1, 2)
    )
    z = PairwiseSimilarity().observe(labels, groups, 4)
    clf = AggregateClassifier(
        "pairwise_similarity",
        "linear",
        n_classes=4,
        n_restarts=2,
        scaling="standard",
        stopping=lambda best, history: len(history) == 2,
        random_state=0,
    )
    clf.fit(X, z, groups=groups)
    first = clf.history_[0]["loss"]
    assert first[-1] < 0.5 * first[0]
    assert len({*zip(clf.predict(X).tolist(), labels.tolist(), strict=True)}) == 4
