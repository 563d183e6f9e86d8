"""Small fitted classifiers of every kind, and their summaries, that the tests of the report share."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from problems_of_groups import FAST, blobs, count, tuples

import unbag
from unbag.report import summarise

HOSTILE = ("<script>alert(1)</script>", '$x_1$ & "co"', "日本の", "an extraordinarily long name of a class")


@cache
def fitted(kind: str) -> tuple[Any, ...]:
    """Return a fitted classifier of a kind, what it was fitted to, and what else a summary takes."""
    clf, X, y, groups, more = RUNS[kind]()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Ordinal.* tells the order of rows")
        return clf.fit(X, y, groups), X, y, groups, more


@cache
def summary_of(kind: str) -> dict[str, Any]:
    """Return the summary of a small run of a kind; callers leave it as it is."""
    clf, X, y, groups, more = fitted(kind)
    return summarise(clf, X, y, groups, title=f"A run: {kind}", **more)


def proportions() -> tuple[Any, ...]:
    """Counts of four classes with names that try to break out, in groups of several sizes; all rows have labels."""
    X, labels = blobs(400, k=4, spread=3.0)
    ids = np.repeat(np.arange(80), np.tile([3, 5, 7, 5], 20))
    names = np.array(HOSTILE)
    clf = unbag.AggregateClassifier(classes=HOSTILE, **FAST)
    inputs = {"instances": "people & <b>places</b>.csv", "groups": "cohorts.csv", "columns": ["age", "income"]}
    y = unbag.target(ids, count(labels, ids, 4))
    return clf, X, y, None, {"inputs": inputs, "labels": names[labels]}


def bags() -> tuple[Any, ...]:
    """Bags without labels, of two scalings."""
    X, labels = blobs(500, k=2, spread=3.0)
    labels = labels & (np.random.default_rng(2).random(500) < 0.4)
    ids = np.arange(500) // 4
    z = [int(labels[ids == one].any()) for one in range(125)]
    clf = unbag.AggregateClassifier("multiple_instance", **{**FAST, "scaling": "auto"})
    return clf, X, unbag.target(ids, z), None, {"inputs": {}}


def compared(aggregate: Any, size: int) -> tuple[Any, ...]:
    """Pairs or triplets of three classes that share rows, and labels of the last fifty rows."""
    X, labels = blobs(300)
    groups = tuples(300, 400, size)
    found = aggregate.observe(labels, groups, 3)
    clf = unbag.AggregateClassifier(aggregate, n_classes=3, **FAST)
    names = np.array(["low", "middle", "top"])[labels[-50:]]
    more: dict[str, Any] = {"inputs": {"pairs": "pairs.csv"}, "labels": labels[-50:]}
    if isinstance(aggregate, unbag.PairwiseSimilarity):
        more["labels"] = names
    return clf, X, found, groups, {**more, "labelled_rows": np.arange(250, 300)}


def majority() -> tuple[Any, ...]:
    """A kind of observation that is neither counts nor yes or no."""
    X, labels = blobs(150)
    groups = unbag.Groups.from_sizes([3] * 50)
    found = unbag.Majority().observe(labels, groups, 3)
    return unbag.AggregateClassifier(unbag.Majority(), n_classes=3, **FAST), X, found, groups, {"inputs": {}}


def plain_labels() -> tuple[Any, ...]:
    """Labels of rows to learn from, too few to hold any out."""
    X, labels = blobs(20)
    return unbag.AggregateClassifier(**FAST), X, labels, None, {"inputs": {}}


def several() -> tuple[Any, ...]:
    """Counts and pairs in one run."""
    X, labels = blobs(200)
    ids, pairs = np.arange(200) // 5, tuples(200, 60, 2)
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    clf = unbag.AggregateClassifier(["label_proportions", "pairwise_similarity"], **FAST)
    return clf, X, [unbag.target(ids, count(labels, ids, 3)), same], [None, pairs], {"inputs": {}, "labels": labels}


RUNS = {
    "label_proportions": proportions,
    "multiple_instance": bags,
    "pairwise_similarity": lambda: compared(unbag.PairwiseSimilarity(), 2),
    "triplet_comparison": lambda: compared(unbag.TripletComparison(), 3),
    "ordinal_rank": lambda: compared(unbag.OrdinalRank(), 2),
    "ordinal_triplet": lambda: compared(unbag.OrdinalTriplet(), 3),
    "Majority": majority,
    "labels": plain_labels,
    "several": several,
}
