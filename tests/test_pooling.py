"""Bags as a whole: pooled columns, and a model of them beside what members tell."""

import numpy as np
import pytest
import torch

import unbag
from unbag import AggregateClassifier, Groups
from unbag.data.bags import pool

QUICK = {"validation": unbag.CrossFitting(3), "random_state": 0}


@pytest.fixture(scope="module")
def bags():
    """Make bags whose label follows from the mean of a column, which no member tells."""
    rng = np.random.default_rng(0)
    shift = np.repeat([-1.0, 1.0], 15)
    noise = rng.normal(size=(30, 4)) * 5
    X = np.stack([noise - noise.mean(1, keepdims=True) + shift[:, None], rng.normal(size=(30, 4))], -1)
    return X.reshape(-1, 2), (shift > 0).astype(int), Groups.from_sizes([4] * 30)


@pytest.fixture(scope="module")
def fitted(bags):
    return AggregateClassifier("multiple_instance", **QUICK).fit(bags[0], bags[1], groups=bags[2])


def test_pooled_columns():
    X = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    found = pool(torch.from_numpy(X), Groups.from_ids([1, 0, 1, 1, 0, 2, 2, 2, 2])).numpy()
    for place, rows in enumerate(([1, 4], [0, 2, 3], [5, 6, 7, 8])):
        own = X[rows].astype(np.float64)
        np.testing.assert_allclose(found[place], [*own.mean(0), *own.min(0), *own.max(0)], rtol=1e-6)


def test_a_constant_column_stays_one():
    assert len(pool(torch.full((55, 1), 0.1), Groups.from_sizes(range(1, 11))).unique()) == 1


def test_pooled_columns_tell_what_members_do_not(fitted, bags):
    X, z, groups = bags
    weights = dict(
        zip([c.name for c in fitted.bag_model_.mixture.candidates], fitted.bag_model_.mixture.weights, strict=True)
    )
    assert weights.get("instances", 0) < 0.5
    positive = fitted.predict_groups(X, groups)
    assert ((positive > 0.5) == z).mean() > 0.9
    np.testing.assert_allclose(fitted.predict_groups(X, groups, z=np.zeros(30, int)), 1 - positive, atol=1e-6)


def test_the_model_of_bags_is_saved(fitted, bags, tmp_path):
    X, _, groups = bags
    fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)
    again = unbag.load(tmp_path / "model")
    assert (again.predict_groups(X, groups) == fitted.predict_groups(X, groups)).all()
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all()


def test_rows_have_no_model_of_bags(bags):
    X, z, groups = bags
    named = AggregateClassifier("multiple_instance", "linear", **QUICK).fit(X, z, groups=groups)
    assert named.bag_model_ is None
