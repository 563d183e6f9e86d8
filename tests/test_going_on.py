"""A fit goes on from a checkpoint of its own, and from no other, also where both are made of functions."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold
from torch import nn

import unbag
from unbag import AggregateClassifier, FromFold

IDS = np.arange(60) // 2


def problem():
    X = np.random.default_rng(0).normal(size=(60, 2))
    labels = (X[:, 0] > 0).astype(int)
    return X, labels, unbag.target(IDS, unbag.LabelProportions().observe(labels, unbag.Groups.from_ids(IDS), 2))


def make(aggregate="label_proportions", model="linear", n_classes=None, **settings):
    training = unbag.NetworkTraining(3, learning_rate=0.1, **settings)
    return AggregateClassifier(aggregate, model, n_classes=n_classes, training=training, random_state=0)


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.last, self.act = nn.Linear(2, 4), nn.Linear(4, 2), act

    def forward(self, x):
        return self.last(self.act(self.first(x)))


def test_losses_that_are_functions_are_told_apart_in_a_search(tmp_path):
    X, _, y = problem()
    grid = {"training__loss": [lambda s: -s.log_softmax(1), lambda s: 1 - s.softmax(1)]}
    found = [
        GridSearchCV(make(checkpoint=folder), grid, cv=GroupKFold(2)).fit(X, y, groups=IDS).cv_results_
        for folder in (None, tmp_path)
    ]
    first, second = (one["mean_test_score"].tolist() for one in found)
    assert first == second
    assert first[0] != first[1]


def makers(*acts):
    return [lambda act=act: Net(act) for act in acts]


def closures(*acts):
    def maker(act):
        return lambda: Net(act)

    return [maker(act) for act in acts]


@pytest.mark.parametrize("way", [makers, closures])
def test_functions_that_make_models_are_told_apart(tmp_path, way):
    X, _, y = problem()
    models = way(torch.relu, torch.sin)
    expected = [make(model=model).fit(X, y).predict_proba(X) for model in models]
    found = [make(model=model, checkpoint=tmp_path).fit(X, y).predict_proba(X) for model in models]
    np.testing.assert_array_equal(expected, found)
    assert not np.array_equal(*found)


def test_folds_that_see_the_same_are_told_apart(tmp_path):
    X, labels, _ = problem()
    groups = unbag.Groups.from_ids(IDS)
    some = FromFold(0, lambda state, label: state or label, lambda state: state)
    twice = FromFold(0, lambda state, label: state + label, lambda state: int(state > 1))
    z = some.observe(labels, groups, 2)
    settings = {"n_classes": 2}
    folds = (some, twice)
    expected = [make(aggregate=one, **settings).fit(X, z, groups).predict_proba(X) for one in folds]
    found = [make(aggregate=one, **settings, checkpoint=tmp_path).fit(X, z, groups).predict_proba(X) for one in folds]
    np.testing.assert_array_equal(expected, found)
    assert not np.array_equal(*found)


def test_functions_go_on_from_where_they_were(tmp_path, caplog):
    X, labels, _ = problem()
    groups = unbag.Groups.from_ids(IDS)
    found = []
    with caplog.at_level(logging.INFO, logger="unbag"):
        for _ in range(2):  # functions of other addresses, and a fold that has not seen these groups yet
            fold = FromFold(0, lambda state, label: state or label, lambda state: state)
            clf = make(aggregate=fold, n_classes=2, loss=lambda s: 1 - s.softmax(1), checkpoint=tmp_path)
            found.append(clf.fit(X, fold.observe(labels, groups, 2), groups).predict_proba(X))
    assert caplog.text.count("resuming at") == 1
    np.testing.assert_array_equal(*found)


def test_what_cannot_be_told_apart_is_refused(tmp_path):
    X, _, y = problem()
    lock = threading.Lock()

    def loss(logits):
        with lock:
            return -logits.log_softmax(1)

    with pytest.raises(TypeError, match=r"the settings \(lock of .*loss of loss\) cannot be told from another one"):
        make(loss=loss, checkpoint=tmp_path).fit(X, y)
    assert not list(tmp_path.iterdir())
    make(loss=loss).fit(X, y)
