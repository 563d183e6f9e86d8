"""Classifiers of scikit-learn by expectation-maximisation."""

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count, tuples
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag import AggregateClassifier, CrossFitting
from unbag.data.labels import Categorical
from unbag.learners import Classifiers, Problem
from unbag.training import Observations

IDS = np.repeat(np.arange(50), 4)


def fit(model, **settings):
    X, labels = blobs()
    clf = AggregateClassifier(model=model, random_state=0, validation=CrossFitting(2), **settings)
    return clf.fit(X, unbag.target(IDS, count(labels, IDS, 3))), X, labels


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(10, max_depth=5),
        HistGradientBoostingClassifier(max_iter=10, max_depth=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_learn_from_counts_and_draw_the_same_numbers_again(model):
    clf, X, labels = fit(model)
    assert (clf.predict(X) == labels).mean() > 0.9
    np.testing.assert_array_equal(fit(model)[0].predict_proba(X), clf.predict_proba(X))
    assert clf.candidates_[0]["model"] == type(model).__name__
    assert not hasattr(model, "classes_"), "the caller's classifier is cloned"


def test_each_step_fits_the_expected_labels_of_the_last_one():
    X, labels = blobs(60, 2)
    z = count(labels, np.arange(60) // 3, 2)
    observations = Observations(unbag.LabelProportions(), unbag.Groups.from_sizes([3] * 20), z, 2)
    problem = Problem.create(torch.from_numpy(X).float(), [observations], Categorical(2))
    path = Classifiers(LogisticRegression()).path(problem, torch.zeros(60, 2), 0)
    first, second = next(path), next(path)
    table = problem.X.numpy()
    for model, outputs in ((first, torch.zeros(60, 2)), (second, first.outputs(problem.X))):
        targets = problem.targets(outputs).numpy()
        rows, classes = targets.nonzero()
        expected = LogisticRegression().fit(table[rows], classes, sample_weight=targets[rows, classes])
        np.testing.assert_allclose(model.classifier.coef_, expected.coef_, rtol=1e-4)


def test_pairs_start_from_a_first_guess():
    X, labels = blobs()
    pairs = tuples(len(X), 600, 2)
    clf = AggregateClassifier("pairwise_similarity", LogisticRegression(), n_classes=3, random_state=0)
    clf.fit(X, unbag.PairwiseSimilarity().observe(labels, pairs, 3), groups=pairs)
    few = [int((labels == label).argmax()) for label in range(3)]
    assert (clf.name_classes(X[few], labels[few]).predict(X) == labels).mean() > 0.9


def test_images_and_missing_values_are_read_as_tables():
    X, labels = blobs(k=2)
    y = unbag.target(IDS, count(labels, IDS, 2))
    X[3, 1] = np.nan
    for model in (LogisticRegression(), HistGradientBoostingClassifier(max_iter=5)):
        clf = AggregateClassifier(model=model, validation=CrossFitting(2), random_state=0).fit(X, y)
        assert np.isfinite(clf.predict_proba(X)).all()
    images = np.nan_to_num(X).reshape(200, 1, 1, 2)
    clf = AggregateClassifier(model=LogisticRegression(), random_state=0).fit(images, y)
    assert (clf.predict(images) == labels).mean() > 0.9


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (RidgeClassifier(), {}, "RidgeClassifier has no predict_proba"),
        (KNeighborsClassifier(), {}, "fit of KNeighborsClassifier has no sample_weight; use another classifier"),
        (make_pipeline(KNeighborsClassifier()), {}, "fit of KNeighborsClassifier has no sample_weight"),
    ],
)
def test_classifiers_without_weights_or_probabilities_are_refused(model, settings, message):
    with pytest.raises(TypeError, match=message):
        fit(model, **settings)


def test_a_classifier_cannot_be_saved(tmp_path):
    clf, *_ = fit(LogisticRegression())
    with pytest.raises((TypeError, ValueError), match="cannot be saved without pickle"):
        clf.save(tmp_path / "model")
