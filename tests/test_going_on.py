"""A fit is resumed from its own checkpoint, and from no other, also where settings are functions."""

import logging

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, GroupKFold

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


def logarithmic(logits):
    return -logits.log_softmax(1)


def absolute(logits):
    return 1 - logits.softmax(1)


def first_or(state, label):
    return state or label


def identity(state):
    return state


def test_losses_that_are_functions_are_told_apart_in_a_search(tmp_path):
    X, _, y = problem()
    grid = {"training__loss": [logarithmic, absolute]}
    found = [
        GridSearchCV(make(checkpoint=folder), grid, cv=GroupKFold(2)).fit(X, y, groups=IDS).cv_results_
        for folder in (None, tmp_path)
    ]
    first, second = (one["mean_test_score"].tolist() for one in found)
    assert first == second
    assert first[0] != first[1]


def test_the_same_functions_are_resumed(tmp_path, caplog):
    X, labels, _ = problem()
    groups = unbag.Groups.from_ids(IDS)
    found = []
    with caplog.at_level(logging.INFO, logger="unbag"):
        for _ in range(2):  # the second kind has not seen these groups yet
            fold = FromFold(0, first_or, identity)
            clf = make(fold, n_classes=2, loss=absolute, checkpoint=tmp_path)
            found.append(clf.fit(X, fold.observe(labels, groups, 2), groups).predict_proba(X))
    assert caplog.text.count("resuming at") == 1
    np.testing.assert_array_equal(*found)


def test_functions_without_a_name_are_refused_with_a_checkpoint(tmp_path):
    X, _, y = problem()
    for settings in ({"loss": lambda logits: -logits.log_softmax(1)}, {"views": lambda rows: rows + torch.rand(1)}):
        with pytest.raises(TypeError, match=r"cannot be recognised when the run is resumed from its checkpoint"):
            make(**settings, checkpoint=tmp_path).fit(X, y)
        assert not list(tmp_path.iterdir())
        make(**settings).fit(X, y)
