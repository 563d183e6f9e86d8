"""Classifiers of scikit-learn as models, by expectation-maximisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count, tuples
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import unbag
from unbag import AggregateClassifier
from unbag.families.classifiers import MOST_ROUNDS, WeightedClassifier
from unbag.report import summarise
from unbag.training import permuted_accuracy


@pytest.fixture(scope="module")
def problem():
    X, y = blobs(240)
    ids = np.arange(240) // 4
    return X, y, unbag.target(ids, count(y, ids, 3))


def by(model, **settings):
    return AggregateClassifier(**{"model": model, "random_state": 0} | settings)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        DecisionTreeClassifier(min_samples_leaf=20),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_learn_from_proportions(problem, model):
    X, y, target = problem
    clf = by(model).fit(X, target)
    assert clf.score(X, y) > 0.9
    assert clf.n_iter_ <= MOST_ROUNDS
    assert not hasattr(model, "n_features_in_")  # it was cloned
    np.testing.assert_array_equal(by(model).fit(X, target).predict_proba(X), clf.predict_proba(X))
    assert summarise(clf, X, target, title="", inputs={})["settings"]["model"] == type(model).__name__


def test_a_search_reaches_the_parameters_of_the_classifier(problem):
    X, _, target = problem
    search = GridSearchCV(by(LogisticRegression()), {"model__C": [1e-6, 1.0]}, cv=GroupKFold(2))
    search.fit(X, target, groups=np.arange(240) // 4)
    assert search.best_params_ == {"model__C": 1.0}


def test_expectation_maximisation_never_makes_the_likelihood_worse(problem):
    X, _, target = problem
    clf = by(LogisticRegression(C=1e6), validation_fraction=0.0).fit(X, target)
    losses = [entry["loss"][0] for entry in clf.history_]
    assert max(np.diff(losses)) < 2e-2  # what is spread evenly costs a little
    assert losses[-1] < losses[0] / 2


def test_pairs_start_from_a_guess():
    X, y = blobs(300)
    pairs = tuples(300, 900, 2)
    z = unbag.PairwiseSimilarity().observe(y, pairs, 3)
    clf = by(GaussianNB(), aggregate="pairwise_similarity", n_classes=3).fit(X, z, groups=pairs)
    assert permuted_accuracy(torch.from_numpy(clf.predict(X)), torch.from_numpy(y)) > 0.9


def test_missing_values_where_the_classifier_reads_them(problem):
    X, y, target = problem
    X = X.copy()
    X[::5, 0] = np.nan
    assert by(HistGradientBoostingClassifier(max_iter=5), epochs=3).fit(X, target).score(X, y) > 0.6
    with pytest.raises(ValueError, match="NaN"):
        by(LogisticRegression()).fit(X, target)


def test_a_class_that_was_not_met_has_a_small_probability():
    X, y = blobs(60)
    model = WeightedClassifier(GaussianNB().fit(X[y > 0], y[y > 0]), 3)
    probs = model.log_probs(torch.from_numpy(X)).exp()
    assert (probs[:, 0] < 1e-3).all()
    torch.testing.assert_close(probs.sum(1), torch.ones(60, dtype=torch.float64))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearSVC(), "LinearSVC has no predict_proba"),
        (KNeighborsClassifier(), "fit of KNeighborsClassifier takes no sample_weight"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "fit of KNeighborsClassifier takes no sample_weight"),
    ],
)
def test_classifiers_that_cannot_learn_so_are_refused(problem, model, message):
    with pytest.raises(TypeError, match=message):
        by(model).fit(problem[0], problem[2])


def test_it_cannot_be_saved_and_a_sentence_says_what_can(problem, tmp_path):
    X, _, target = problem
    with pytest.raises(TypeError, match=r"cannot be saved without pickle.*networks and model='trees' can be saved"):
        by(GaussianNB()).fit(X, target).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
