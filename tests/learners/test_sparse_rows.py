"""Sparse rows: the same numbers as of a dense table, through fits, predictions, saved models and the command line."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix, random_array
from sklearn.metrics import roc_auc_score

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups, LabelProportions, PublishedCounts, noise, published
from unbag.data import features
from unbag.data.labels import Categorical
from unbag.data.row_source import SparseRows, fill_missing
from unbag.data.scaling import fit_scaling
from unbag.diagnostics.shift import Moments
from unbag.learners import Boosting, Network, Problem
from unbag.persistence.run_folder import Run
from unbag.tables import fit_tables, make_plan, predict_table
from unbag.training import Observations

LINEAR = {"model": "linear", "validation": CrossFitting(2), "random_state": 0, "n_jobs": 1}


def draw(n=600, n_categories=40, seed=0):
    """Return numbers with missing values beside indicators of categories, and labels that depend on both."""
    rng = np.random.default_rng(seed)
    category, numbers = rng.integers(0, n_categories, n), rng.normal(size=(n, 2)) + 5
    effect = rng.normal(size=n_categories)
    labels = (rng.random(n) < 1 / (1 + np.exp(-2 * (effect[category] + numbers[:, 0] - 5)))).astype(int)
    numbers[rng.random((n, 2)) < 0.1] = np.nan
    return np.c_[numbers, np.eye(n_categories)[category]], labels


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31))
def test_operations_agree_with_those_of_a_dense_table(seed):
    rng = np.random.default_rng(seed)
    matrix = random_array((9, 5), density=rng.random(), rng=rng, format="csr")
    matrix.data[rng.random(len(matrix.data)) < 0.2] = np.nan
    rows, table = SparseRows(matrix), torch.from_numpy(matrix.toarray())
    shift, factor = torch.from_numpy(rng.normal(size=5) * (rng.random(5) < 0.5)), torch.from_numpy(rng.normal(size=5))
    everything = torch.arange(9)
    scaled = ((table - shift) * factor).float().clamp(-1, 1)
    torch.testing.assert_close(rows.scale(shift, factor, 1.0).gather(everything), scaled, equal_nan=True)
    columns = rows.flag_columns(np.isnan).nonzero().flatten()
    assert columns.tolist() == table.isnan().any(0).nonzero().flatten().tolist()
    filled, dense = fill_missing(rows, columns), fill_missing(table, columns)
    torch.testing.assert_close(filled.gather(everything), dense)
    weight = torch.from_numpy(rng.normal(size=(dense.shape[1], 3)))
    torch.testing.assert_close(filled @ weight, dense @ weight)
    torch.testing.assert_close(filled.T @ (dense @ weight), dense.T @ dense @ weight)
    for found, expected in zip(rows.moments(), vars(Moments.of(table)).values(), strict=True):
        np.testing.assert_allclose(found, expected)


def test_only_columns_with_most_values_are_centred():
    table = np.c_[np.arange(1.0, 7), [0, 0, 0, 0, 3, 4], [0, 1, 1, 1, 1, 1], np.zeros(6), np.full(6, 7.0)]
    scaling = fit_scaling(SparseRows(csr_array(table)))
    np.testing.assert_allclose(scaling.shift, [3.5, 0, 0, 0, 0])
    np.testing.assert_allclose(scaling.factor, [1 / np.std(range(6)), 12.5**-0.5, 1, 0, 0], rtol=1e-6)
    together = fit_scaling(SparseRows(csr_array(table[:, 1:3])), "table")
    np.testing.assert_allclose(together.factor, [(30 / 7) ** -0.5] * 2, rtol=1e-6)
    with pytest.raises(ValueError, match="too large for float32, in column 1"):
        fit_scaling(SparseRows(csr_array([[0, 1e300], [1, 0]])))


@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_a_fit_to_sparse_rows_predicts_sparse_and_dense_rows(kind, tmp_path):
    table, labels = draw()
    X, groups = kind(np.nan_to_num(table)), Groups.from_sizes([4] * 150)
    z = LabelProportions().observe(labels, groups, 2)
    clf = AggregateClassifier(**LINEAR | {"model": "auto"}).fit(X, z, groups=groups)
    assert [c["model"] for c in clf.candidates_] == ["linear"]
    probs = clf.predict_proba(X)
    assert roc_auc_score(labels, probs[:, 1]) > 0.75
    np.testing.assert_allclose(clf.predict_proba(X.toarray()), probs, atol=1e-6)
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(unbag.load(tmp_path / "model").predict_proba(X), probs)
    posterior = clf.disaggregate(X, z, groups=groups)
    np.testing.assert_allclose(posterior[:4].sum(0), z[0], atol=1e-6)
    assert clf.score(X, labels) > 0.7
    assert np.isfinite(clf.score(X, z, groups=groups))
    assert clf.check_shift(X) == []
    dense = AggregateClassifier(**LINEAR).fit(X.toarray(), z, groups=groups)
    np.testing.assert_allclose(dense.predict_proba(X), dense.predict_proba(X.toarray()), atol=1e-6)


@pytest.mark.parametrize("learner", [Network(n_steps=1), Boosting(n_steps=2)], ids=lambda learner: learner.name)
def test_other_models_read_sparse_rows_as_dense_ones(learner):
    if learner.name == "trees":
        pytest.importorskip("lightgbm")
    table, labels = draw(200, 10)
    groups = Groups.from_sizes([4] * 50)
    observed = Observations(LabelProportions(), groups, LabelProportions().observe(labels, groups, 2), 2)
    X, outputs = csr_array(np.nan_to_num(table).astype(np.float32)), []
    for rows in (SparseRows(X), torch.from_numpy(X.toarray())):
        problem = Problem.create(rows, [observed], Categorical(2))
        *_, model = learner.path(problem, problem.constant_outputs.expand(200, -1), 0)
        outputs.append(model.outputs(rows))
    torch.testing.assert_close(*outputs)


def test_a_column_of_many_categories_becomes_sparse_rows():
    n, n_categories = 10_000, 1000
    rng = np.random.default_rng(0)
    user, effect = rng.permutation(np.arange(n) % n_categories), rng.normal(size=n_categories)
    labels = (rng.random(n) < 1 / (1 + np.exp(-2 * effect[user]))).astype(int)
    table = pd.DataFrame({"number": rng.normal(size=n), "user": pd.Categorical(user.astype(str))})
    groups = Groups.from_sizes([4] * 2500)
    clf = AggregateClassifier(**LINEAR).fit(table, LabelProportions().observe(labels, groups, 2), groups=groups)
    rows = clf._read_rows(table)
    assert isinstance(rows, SparseRows)
    assert rows.shape == (n, n_categories + 1)
    assert rows.matrix.nnz == 2 * n
    assert roc_auc_score(labels, clf.predict_proba(table)[:, 1]) > 0.8
    np.testing.assert_allclose(clf.predict_proba(table.head(10)), clf.predict_proba(table)[:10], atol=1e-6)


def test_the_sparse_encoding_has_the_numbers_of_the_dense_one(monkeypatch):
    town = ["Bonn", "Ulm", None, "Ulm", "Kiel"]
    table = features.Table("X", unbag.data.frames.pa.table({"age": [1.0, None, 3.0, 0.0, 5.0], "town": town}))
    preparation = features.fit_preparation(table, ["age", "town"], np.arange(4))
    dense, tally = preparation.encode(table), features.Tally()
    monkeypatch.setattr(features, "WIDE_CATEGORY", 2)
    monkeypatch.setattr(features, "MAX_DENSE_BYTES", 0)
    rows = preparation.encode_rows(table, tally)
    np.testing.assert_array_equal(rows.gather(torch.arange(5)), dense)
    assert +tally == {(features.UNKNOWN, "town"): 1}  # Kiel, which is in no training row


def test_the_command_line_encodes_many_categories_as_sparse_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(features, "WIDE_CATEGORY", 10)
    monkeypatch.setattr(features, "MAX_DENSE_BYTES", 0)
    table, labels = draw(400, 30)
    people = pd.DataFrame({"ward": np.arange(400) // 5, "age": table[:, 0], "street": table[:, 2:].argmax(1)})
    people["street"] = "s" + people["street"].astype(str)
    people.to_csv(tmp_path / "people.csv", index=False)
    counts = pd.DataFrame({"ward": range(80), "ill": labels.reshape(80, 5).sum(1)})
    counts.assign(well=5 - counts.ill).to_csv(tmp_path / "wards.csv", index=False)
    plan = make_plan(
        {"instances": tmp_path / "people.csv", "groups": tmp_path / "wards.csv", "model": "linear", "seed": 0}
    )
    report = fit_tables(plan, Run(tmp_path / "run"))
    predict_table(report.run, tmp_path / "people.csv", tmp_path / "predicted.csv")
    predicted = pd.read_csv(tmp_path / "predicted.csv")
    assert roc_auc_score(labels, predicted["p_ill"]) > 0.75


def test_two_overlapping_tables_of_noisy_counts_of_a_rare_class_are_learned_from_sparse_rows():
    n, rng = 3000, np.random.default_rng(0)
    campaign, site, number = rng.integers(0, 60, n), rng.integers(0, 40, n), rng.normal(size=n)
    logit = -3 + rng.normal(size=60)[campaign] + 0.7 * rng.normal(size=40)[site] + number
    labels = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    X = csr_array(np.c_[number, np.eye(60)[campaign], np.eye(40)[site]])
    groups = [Groups.from_ids(key * 5 + rng.integers(0, 5, n)) for key in (campaign, site)]
    z = []
    for g in groups:
        counts = LabelProportions().observe(labels, g, 2)
        noisy = published.noisy(counts[:, 1] + torch.from_numpy(rng.normal(size=len(g))), noise.Gaussian(1.0))
        z.append(torch.stack([published.between(torch.zeros(len(g)), g.sizes), noisy], 1))
    clf = AggregateClassifier([PublishedCounts()] * 2, **LINEAR).fit(X, z, groups=groups)
    assert roc_auc_score(labels, clf.predict_proba(X)[:, 1]) > 0.8  # by the truth .86
