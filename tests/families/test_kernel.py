"""Kernel logistic regression: against scikit-learn, and as a candidate of the automatic model."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import unbag
from unbag import AggregateClassifier, Groups, LabelProportions
from unbag.families.kernel import KernelLogistic, fit_kernel
from unbag.training import Observations
from unbag.training.architectures.rbf import gaussian_kernel


def labelled(n=40, columns=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, columns)).astype(np.float32) * (1 + y[:, None]), y


def test_weights_of_kernels_are_those_of_logistic_regression_on_a_square_root_of_the_kernel():
    X, y = labelled()
    rows = torch.from_numpy(X).double()
    kernel = gaussian_kernel(rows, rows, torch.tensor(1 / 60))
    torch.testing.assert_close(kernel, (-torch.cdist(rows, rows).square() / 60).exp())
    weights = torch.linspace(0.5, 2, 40, dtype=torch.float64)
    found, constant = fit_kernel(kernel, torch.from_numpy(y).double(), weights, 0.1)
    root = torch.linalg.cholesky(kernel)
    twin = LogisticRegression(C=10, tol=1e-10, max_iter=1000).fit(root.numpy(), y, weights.numpy())
    np.testing.assert_allclose(kernel @ found + constant, twin.decision_function(root.numpy()), atol=1e-4)


def test_the_fitted_network_says_what_the_kernels_do_and_explains_left_out_rows():
    X, y = labelled(80)
    z = torch.nn.functional.one_hot(torch.from_numpy(y), 2)
    labels = Observations(LabelProportions(), Groups.from_sizes([1] * 80), z, 2)
    used, held_out = labels.take(torch.arange(60)), labels.take(torch.arange(60, 80))
    found = KernelLogistic().fit(torch.from_numpy(X), [used], [held_out], seed=0)
    log_probs = found.log_probs(torch.from_numpy(X))
    assert found.scores[found.best] == pytest.approx(float(log_probs[range(60, 80), y[60:]].mean()), abs=1e-6)
    assert float((log_probs.argmax(1)[60:].numpy() == y[60:]).mean()) > 0.9  # which no linear model tells


@pytest.mark.filterwarnings("ignore:40 groups can be compared")
def test_it_is_a_candidate_where_columns_are_more_than_labels(tmp_path):
    X, y = labelled()
    clf = AggregateClassifier(epochs=2, n_folds=2, random_state=0).fit(X, y)
    weights = {one["model"]: one["weight"] for one in clf.candidates_}
    assert max(weights, key=weights.get) == "rbf"
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), clf.predict_proba(X))
    few = AggregateClassifier(epochs=2, n_folds=2, random_state=0).fit(X[:, :5], y)
    assert "rbf" not in {one["model"] for one in few.candidates_}
