"""A limit of time: kept by every family, with the best so far as the result."""

from __future__ import annotations

import time

import numpy as np
import pytest
from problems_of_groups import blobs, count

import unbag
from unbag import AggregateClassifier

IDS = np.arange(240) // 4


@pytest.fixture(scope="module")
def problem():
    X, labels = blobs(240)
    return X, labels, unbag.target(IDS, count(labels, IDS, 3))


@pytest.mark.parametrize("model", ["linear", "mlp", "trees", "auto"])
def test_training_ends_in_time_with_a_model_that_predicts(model, problem):
    X, _, y = problem
    settings = {"epochs": 10**6, "patience": None} if model in ("linear", "mlp") else {}
    begun = time.monotonic()
    clf = AggregateClassifier(model=model, time_limit=0.3, random_state=0, **settings).fit(X, y)
    assert time.monotonic() - begun < 30  # without the limit, hours for the first two
    assert np.isfinite(clf.predict_log_proba(X)).all()


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
