"""Permutation importance against a plain loop, and where predictions are least certain."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch
from problems_of_groups import FAST, blobs, count, fit_all_candidates, tuples

import unbag
from unbag.out_of_fold import log_likelihoods
from unbag.report import column_metrics, summarise


@pytest.fixture(scope="module")
def table():
    """A model that held groups out, of a table in which only one column of text and one of numbers matter."""
    X, labels = blobs(360, k=2, spread=3.0)
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "length": X[:, 0] - X[:, 1],
            "shape": np.where(random.random(360) < 0.85, np.array(["round", "flat"])[labels], "odd"),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 90, 360), "D"),
            "noise": np.where(random.random(360) < 0.1, np.nan, random.normal(size=360)),
            "same": 7.0,
        }
    )
    ids = np.arange(360) // 4
    y = unbag.target(ids, count(labels, ids, 2))
    clf = unbag.AggregateClassifier(**{**FAST, "model": "linear"}).fit(frame, y)
    return clf, frame, y, summarise(clf, frame, y, title="", inputs={})


def test_columns_that_matter_come_first_and_a_constant_one_is_worth_nothing(table):
    _, _, _, summary = table
    found = {one["column"]: one for one in summary["importance"]["columns"]}
    assert {*list(found)[:2]} == {"length", "shape"}
    for name in ("length", "shape"):
        assert found[name]["drop"] > 3 * max(abs(found[other]["drop"]) for other in ("day", "noise"))
        assert found[name]["drop"] > 2 * found[name]["error"] > 0
    assert found["same"] == {"column": "same", "drop": 0.0, "error": 0.0}
    assert summary["columns"] == 5  # not ten, of which the table is made
    assert summary["importance"]["held_out"]
    assert summary["importance"]["groups"] == 9


def plain_loop(clf, rows, sets, encoded, n_permutations):
    """Permute the encoded columns of one column among the rows of all groups; return the drop of each group."""
    members = np.unique(np.concatenate([one.groups.members.numpy() for one in sets]))
    generator = np.random.default_rng(0)

    def explain(values):
        return log_likelihoods(sets, clf._out_of_fold_log_probs(clf._log_probs_of_models(values), sets))

    before, drops = explain(rows), [torch.zeros(len(one.groups)) for one in sets]
    for _ in range(n_permutations):
        permuted = rows.clone()
        permuted[members, encoded] = rows[members[generator.permutation(len(members))], encoded]
        drops = [
            drop + (one - two) / n_permutations for drop, one, two in zip(drops, before, explain(permuted), strict=True)
        ]
    return drops


def test_importance_is_that_of_a_plain_loop_over_models_that_have_not_seen_the_groups():
    X, labels = blobs(120)
    pairs, ids = tuples(120, 50, 2), np.arange(120) // 5
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    y, groups = [unbag.target(ids, count(labels, ids, 3)), same], [None, pairs]
    weights = [np.linspace(0.5, 2, 24), np.linspace(1, 3, 50)]
    clf = fit_all_candidates(X, y, groups, aggregate=["label_proportions", "pairwise_similarity"], n_classes=3)
    found = summarise(clf, X, y, groups, group_weights=weights, title="", inputs={})["importance"]
    assert (found["groups"], found["rows"], found["permutations"]) == (74, 120, 5)
    sets = clf._observations(y, groups, 120, group_weights=weights)
    for one in found["columns"]:
        drops = plain_loop(clf, torch.from_numpy(X), sets, slice(int(one["column"][1:]), int(one["column"][1:]) + 1), 5)
        means = [np.average(own, weights=weight) for own, weight in zip(drops, weights, strict=True)]
        assert one["drop"] == pytest.approx(np.mean(means), abs=1e-6)
        errors = [
            np.sqrt(np.sum((weight * (own.numpy() - mean)) ** 2) * len(own) / (len(own) - 1)) / weight.sum()
            for own, weight, mean in zip(drops, weights, means, strict=True)
        ]
        assert one["error"] == pytest.approx(np.hypot(*errors) / 2, abs=1e-6)


def test_of_many_columns_and_rows_some_are_tried(table, monkeypatch):
    clf, frame, y, _ = table
    monkeypatch.setattr(column_metrics, "MOST_COLUMNS", 2)
    monkeypatch.setattr(column_metrics, "MOST_MEMBERS", 20)
    monkeypatch.setattr(column_metrics, "MOST_PREDICTIONS", 130)
    found = summarise(clf, frame, y, title="", inputs={})
    assert {one["column"] for one in found["importance"]["columns"]} == {"length", "shape"}
    assert (found["importance"]["groups"], found["importance"]["rows"]) == (5, 20)
    assert (found["columns"], found["importance"]["permutations"]) == (5, 3)
    monkeypatch.setattr(column_metrics, "MOST_PREDICTIONS", 9)
    assert summarise(clf, frame, y, title="", inputs={})["importance"] is None


def test_the_values_with_the_lowest_confidence_are_those_of_a_plain_mean(table):
    clf, frame, _, summary = table
    confidence = clf.predict_proba(frame).max(1)
    found = {(one["column"], one.get("value", one.get("from"))): one for one in summary["least_confident"]}
    assert len(found) == column_metrics.MOST_PARTS
    odd = found["shape", "odd"]
    assert odd["members"] == (frame["shape"] == "odd").sum()
    assert odd["confidence"] == pytest.approx(confidence[frame["shape"] == "odd"].mean())
    middle = next(one for one in summary["least_confident"] if one["column"] == "length")
    inside = frame["length"].between(middle["from"], middle["to"], inclusive="left")
    assert middle["members"] == inside.sum()
    assert middle["confidence"] == pytest.approx(confidence[inside].mean())
    days = [one for one in summary["least_confident"] if one["column"] == "day"]
    assert all(one["from"].startswith("2024-0") for one in days)
    assert "same" not in {one["column"] for one in summary["least_confident"]}


def test_groups_with_the_lowest_confidence_come_first(table):
    clf, frame, y, summary = table
    before = clf.predict_proba(frame).max(1).reshape(90, 4).mean(1)
    after = clf.disaggregate(frame, y).max(1).reshape(90, 4).mean(1)
    listed = summary["sets"][0]["unsure"]
    assert [one["before"] for one in listed] == pytest.approx(np.sort(before)[:15])
    assert listed[0]["after"] == pytest.approx(after[int(listed[0]["group"])])


def test_importance_is_tried_as_often_as_a_time_limit_allows(table):
    clf, frame, y, _ = table
    limited = copy(clf).set_params(time_limit=1e-6)
    assert summarise(limited, frame, y, title="", inputs={})["importance"] is None
