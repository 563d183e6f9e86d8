"""A limit of time: kept by every family, with the best so far as the result."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count

import unbag
from unbag import AggregateClassifier, UnbagWarning
from unbag.fitting import Prepared

IDS = np.arange(240) // 4


@pytest.fixture(scope="module")
def problem():
    X, labels = blobs(240)
    return X, labels, unbag.target(IDS, count(labels, IDS, 3))


@pytest.mark.parametrize("model", ["linear", "mlp", "trees"])
def test_training_ends_in_time_with_a_model_that_predicts(model, problem):
    X, _, y = problem
    settings = {"epochs": 10**6, "patience": None} if model in ("linear", "mlp") else {}
    begun = time.monotonic()
    clf = AggregateClassifier(model=model, time_limit=0.3, random_state=0, **settings).fit(X, y)
    assert time.monotonic() - begun < 30  # without the limit, hours for the first two
    assert np.isfinite(clf.predict_log_proba(X)).all()


@pytest.mark.parametrize("n_groups", [60, 15, 3])  # one split, none, and fewer groups than can choose
@pytest.mark.filterwarnings("ignore:3 groups can be compared in 2 ways")
def test_where_time_is_short_networks_are_the_result_and_a_warning_says_so(n_groups, tmp_path):
    X, labels = blobs(240)
    mixed = labels + np.random.default_rng(0).normal(size=240)
    ids = mixed.argsort().argsort() * n_groups // 240
    clf = AggregateClassifier(time_limit=0.3, random_state=0)
    with pytest.warns(UnbagWarning, match="0.3 seconds are too few to leave every group out of each kind") as told:
        clf.fit(X, unbag.target(ids, count(labels, ids, 3)))
    assert (clf.candidates_, clf.folds_, clf.scaling_) == ([], None, "standard")
    assert {*clf.model_names_} == {"mlp"}
    n = len(clf.models_)
    said = "one model" if n == 1 else f"the mean of {n} models"
    assert any(f"the result is {said}" in str(one.message) for one in told)
    assert [one.kind for one in clf.diagnosis_].count("short_time") == 1
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize(("limit", "n_models"), [(5.1, 5), (5.3, 6)])
def test_as_many_networks_are_averaged_as_there_is_time_for(problem, limit, n_models):
    """Each takes a second; for more than a fifth of one another is begun; there is no time for all folds."""
    X, _, y = problem
    seconds = itertools.count()  # every fit asks twice
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    with patch("unbag.fold_fitting.time", clock), pytest.warns(UnbagWarning) as told:
        clf = AggregateClassifier(time_limit=limit, epochs=3, random_state=0).fit(X, y)
    assert any(f"the mean of {n_models} models" in str(one.message) for one in told)
    first, *others = clf._log_probs_of_models(torch.from_numpy(X).float())
    assert len(others) == n_models - 1
    assert all(not torch.equal(first, own) for own in others)
    expected = torch.stack([first, *others]).exp().mean(0)
    np.testing.assert_allclose(clf.predict_proba(X), expected, rtol=1e-6)


@pytest.mark.parametrize("n_groups", [8, 10])
def test_networks_that_take_turns_leave_out_other_groups_where_none_can_be_held_out(n_groups, problem, tmp_path):
    X, labels, _ = problem
    ids = np.arange(240) * n_groups // 240
    z, groups = count(labels, ids, 3), unbag.Groups.from_ids(ids)
    seconds, fits = itertools.count(), []
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))

    def keep_sets(self):
        fits.append([[one.groups.members.tolist() for one in sets] for sets in (self.used, self.held_out)])
        return train(self)

    train = Prepared.train
    with (
        patch("unbag.fold_fitting.time", clock),
        patch.object(Prepared, "train", keep_sets),
        pytest.warns(UnbagWarning, match="the mean of 9 models"),
    ):
        clf = AggregateClassifier(time_limit=9.1, random_state=0).fit(X, z, groups=groups)
    used, left_out = ([{row for own in sets for row in own} for sets in kind] for kind in zip(*fits, strict=True))
    assert all(own | other == {*range(240)} and not own & other for own, other in zip(used, left_out, strict=True))
    assert set.union(*left_out[:8]) == {*range(240)}  # eight folds, and then the first again
    assert sum(map(len, left_out[:8])) == 240
    assert left_out[8] == left_out[0]
    assert clf.held_out_ == [None]  # not from all of them
    assert clf.estimated_accuracy_ is None
    scores = [one["score"] for one in clf.replicas_]
    assert len(scores) == 9
    assert np.isfinite(scores).all()
    scored = np.isfinite([entry["score"] for entry in clf.history_]).all(0)
    assert scored.tolist() == [True, False, True] * 3  # the match is trained to its end, whatever left-out groups say
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))


def test_where_there_is_time_for_all_folds_these_are_fitted(problem):
    X, _, y = problem
    plain, limited = (AggregateClassifier(time_limit=limit, random_state=0).fit(X, y) for limit in (None, 3600))
    assert plain.candidates_ == limited.candidates_
    np.testing.assert_array_equal(plain.predict_proba(X), limited.predict_proba(X))


def test_folds_that_are_asked_for_are_fitted_in_a_short_time_too(problem):
    X, _, y = problem
    clf = AggregateClassifier(n_folds=3, time_limit=0.3, random_state=0).fit(X, y)
    assert len(clf.candidates_) > 1
    assert {*clf.folds_[0]} == {0, 1, 2}


def test_bags_in_a_short_time_have_no_model_of_pooled_columns(problem):
    X, labels, _ = problem
    groups = unbag.Groups.from_ids(IDS)
    bags = unbag.MultipleInstance().observe(labels == 0, groups, 2)
    clf = AggregateClassifier("multiple_instance", time_limit=0.1, random_state=0)
    with pytest.warns(UnbagWarning, match="too few to leave every group out"):
        clf.fit(X, bags, groups=groups)
    assert clf.bag_model_ is None
    assert np.isfinite(clf.predict_groups(X, groups)).all()


def test_patience_still_counts(problem):
    X, _, y = problem
    settings = {"model": "linear", "patience": 2, "epochs": 500, "learning_rate": 3.0, "scaling": "standard"}
    plain, limited = (
        AggregateClassifier(time_limit=limit, random_state=0, **settings).fit(X, y) for limit in (None, 3600)
    )
    assert plain.n_iter_ == limited.n_iter_ < 500


@pytest.mark.parametrize("limit", [0, -1.0, np.inf, True, "9m"])
def test_other_limits_are_refused(limit, problem):
    X, _, y = problem
    for model in ("mlp", "auto"):
        with pytest.raises(ValueError, match="time_limit must be a positive number of seconds, or None"):
            AggregateClassifier(model=model, time_limit=limit).fit(X, y)
