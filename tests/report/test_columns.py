"""Permutation importance against a plain loop."""

import numpy as np
import pandas as pd
import pytest
import torch
from problems_of_groups import blobs, count, tuples
from report_runs import FAST, fit

import unbag
from unbag.report import columns, summarise


@pytest.fixture(scope="module")
def table():
    """A model of a table in which only one column of text and one of numbers matter, and its summary."""
    X, labels = blobs(200, k=2, spread=3.0)
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "length": X[:, 0] - X[:, 1],
            "shape": np.where(random.random(200) < 0.85, np.array(["round", "flat"])[labels], "odd"),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 90, 200), "D"),
            "noise": np.where(random.random(200) < 0.1, np.nan, random.normal(size=200)),
            "same": 7.0,
        }
    )
    ids = np.arange(200) // 4
    y = unbag.target(ids, count(labels, ids, 2))
    clf = fit(unbag.AggregateClassifier(**FAST), frame, y)
    return clf, frame, y, summarise(clf, frame, y, title="", inputs={})


def test_columns_that_matter_come_first_and_a_constant_one_has_no_importance(table):
    *_, summary = table
    found = {column["column"]: column for column in summary["importance"]["columns"]}
    assert {*list(found)[:2]} == {"length", "shape"}
    for name in ("length", "shape"):
        assert found[name]["drop"] > 3 * max(abs(found[other]["drop"]) for other in ("day", "noise"))
        assert found[name]["drop"] > 2 * found[name]["error"] > 0
    assert found["same"] == {"column": "same", "drop": 0.0, "error": 0.0}
    assert summary["columns"] == 5  # not the numeric columns that encode them
    assert (summary["importance"]["groups"], summary["importance"]["held_out"]) == (50, True)


def test_importance_is_that_of_a_plain_loop_over_models_that_did_not_see_the_groups():
    X, labels = blobs(60)
    pairs, ids = tuples(60, 25, 2), np.arange(60) // 5
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    y, groups = [unbag.target(ids, count(labels, ids, 3)), same], [None, pairs]
    weights = [np.linspace(0.5, 2, 12), np.linspace(1, 3, 25)]
    clf = fit(unbag.AggregateClassifier(["label_proportions", "pairwise_similarity"], **FAST), X, y, groups)
    found = summarise(clf, X, y, groups, group_weights=weights, title="", inputs={})["importance"]
    assert (found["groups"], found["rows"], found["permutations"]) == (37, 60, 5)
    sets = clf._read_observations(y, groups, 60, group_weights=weights)

    def score(values):
        by_fold = torch.stack([clf._predict_rows(values, fold=fold) for fold in range(2)])
        members = [by_fold[folds, s.groups.members] for s, folds in zip(sets, clf.member_folds_, strict=True)]
        return [
            s.aggregate.checked_evidence(m, s.groups.segments, s.checked).log_likelihood.numpy()
            for s, m in zip(sets, members, strict=True)
        ]

    before = score(torch.from_numpy(X))
    for column in found["columns"]:
        generator, j = np.random.default_rng(0), int(column["column"][1:])
        drops = [np.zeros(len(b)) for b in before]
        for _ in range(5):
            permuted = torch.from_numpy(X).clone()
            permuted[:, j] = permuted[generator.permutation(60), j]
            drops = [d + (b - a) / 5 for d, b, a in zip(drops, before, score(permuted), strict=True)]
        shares, values = np.concatenate([w / w.sum() / 2 for w in weights]), np.concatenate(drops)
        mean = shares @ values
        assert column["drop"] == pytest.approx(mean, abs=1e-6)
        assert column["error"] == pytest.approx(np.sqrt(np.sum((shares * (values - mean)) ** 2) * 37 / 36), abs=1e-6)


def test_of_many_columns_the_most_correlated_are_permuted():
    X, labels = blobs(120, k=2)
    wide = np.hstack([np.random.default_rng(3).normal(size=(120, 40)), X])
    y = unbag.target(np.arange(120) // 4, count(labels, np.arange(120) // 4, 2))
    clf = fit(unbag.AggregateClassifier(**FAST), wide, y)
    summary = summarise(clf, wide, y, title="", inputs={})
    names = {column["column"] for column in summary["importance"]["columns"]}
    assert (summary["columns"], len(names)) == (42, columns.MAX_COLUMNS)
    assert {"x40", "x41"} < names
