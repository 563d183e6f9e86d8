"""Extremely randomised trees: as trees of LightGBM they say what those of scikit-learn do."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.ensemble import ExtraTreesRegressor

import unbag
from unbag import AggregateClassifier, Groups, LabelProportions
from unbag.families import extra_trees
from unbag.families.extra_trees import ExtraTrees, as_trees
from unbag.saved_trees import read_trees, trees_as_bytes
from unbag.training import Observations

pytest.importorskip("lightgbm")


def labels_of(y, weights=None):
    z = torch.nn.functional.one_hot(torch.as_tensor(y), 2)
    return Observations(LabelProportions(), Groups.from_sizes([1] * len(y)), z, 2, group_weights=weights)


@st.composite
def problems(draw):
    n, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.integers(-6, 6))
    X = (random.normal(size=(n, columns)) * scale).astype(np.float32)
    if draw(st.booleans()):
        X = X.round()
    return X, random.integers(0, 2, n), random.uniform(0.1, 3, n), draw(st.integers(0, 2**31))


@settings(deadline=None, max_examples=40)
@given(problems())
def test_log_odds_are_those_of_the_mean_of_shares_in_leaves_before_and_after_saving(problem):
    X, y, weights, seed = problem
    forest = ExtraTreesRegressor(7, max_features="sqrt", random_state=seed).fit(X, y, weights)
    share = (weights @ y + 0.5) / (weights.sum() + 1)
    start = np.log(share / (1 - share))
    model = as_trees(forest, start)
    borders = np.float32([[tree.tree_.threshold[0]] * X.shape[1] for tree in forest])
    rows = np.concatenate([X, X[::-1] + X.std(), borders])
    leaves = [tree.tree_.value[tree.apply(rows), 0, 0] for tree in forest]
    expected = start + (np.mean(leaves, 0) - share) / (share * (1 - share))
    content = trees_as_bytes([model])
    (again,) = read_trees("trees", content, 1, X.shape[1], 2)
    for one in (model, again):
        log_probs = one.log_probs(torch.from_numpy(rows))
        np.testing.assert_allclose(log_probs[:, 1] - log_probs[:, 0], expected, rtol=1e-9, atol=1e-9)
    assert trees_as_bytes([again]) == content


def wide(n=40, columns=60, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    X = random.normal(size=(n, columns)).astype(np.float32)
    X[:, ::3] += y[:, None]
    return torch.from_numpy(X), y


def test_a_fit_is_the_same_for_the_same_seed(monkeypatch):
    monkeypatch.setattr(extra_trees, "N_TREES", 100)
    X, y = wide()
    used, held_out = labels_of(y).take(torch.arange(30)), labels_of(y).take(torch.arange(30, 40))
    found, again, other = (ExtraTrees().fit(X, [used], [held_out], seed) for seed in (0, 0, 1))
    log_probs = found.log_probs(X)
    torch.testing.assert_close(again.log_probs(X), log_probs, rtol=0, atol=0)
    assert not torch.equal(other.log_probs(X), log_probs)
    assert found.scores == [pytest.approx(float(log_probs[range(30, 40), y[30:]].mean()))]
    assert found.trained.models[0].booster.num_trees() == 100


def test_a_label_of_weight_three_is_as_good_as_three(monkeypatch):
    monkeypatch.setattr(extra_trees, "N_TREES", 50)
    X, y = wide(200, 3)  # rows that look alike but for their labels
    X, weights = X.round().clamp(0, 1), torch.tensor([1.0, 3.0])[torch.from_numpy(y)]
    copies = torch.arange(200).repeat_interleave(weights.long())
    weighted, copied, alike = (
        ExtraTrees().fit(X[places], [labels_of(y[places], own)], [], 0).log_probs(X)
        for places, own in ((range(200), weights), (copies, None), (range(200), None))
    )
    torch.testing.assert_close(weighted, copied, rtol=0, atol=0.02)
    assert float((weighted - alike).abs().max()) > 0.1


def test_one_class_alone_and_a_time_that_is_up_leave_a_model():
    X, _ = wide()
    found = ExtraTrees().fit(X, [labels_of(np.ones(40, dtype=int))], [], 0, time_limit=1e-9)
    assert found.trained.models[0].booster.num_trees() == extra_trees.STEP
    assert float(found.log_probs(X)[:, 1].exp().min()) > 0.9


@pytest.mark.filterwarnings("ignore:40 groups can be compared")
def test_they_are_a_candidate_where_columns_are_more_than_labels_and_saved_with_other_trees(tmp_path, monkeypatch):
    monkeypatch.setattr(extra_trees, "N_TREES", 50)
    X, y = wide()
    X, settings = X.numpy(), {"epochs": 2, "n_folds": 2, "random_state": 0}
    clf = AggregateClassifier(**settings).fit(X, y)
    assert {one["model"]: one["weight"] for one in clf.candidates_}["extra_trees"] > 0
    assert "trees" in clf.model_names_
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))
    few = AggregateClassifier(**settings).fit(X[:, :5], y)
    assert "extra_trees" not in {one["model"] for one in few.candidates_}
    monkeypatch.setattr("unbag.fold_fitting.has_lightgbm", lambda: False)
    without = AggregateClassifier(**settings).fit(X, y)
    assert [one["model"] for one in without.candidates_] == ["linear", "mlp", "rbf"]
