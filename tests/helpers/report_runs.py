"""Small fitted classifiers of every kind, and their summaries, that the tests of the report share."""

import warnings
from functools import cache
from typing import Any

import numpy as np
from problems_of_groups import blobs, count, tuples

import unbag
from unbag.estimators.settings import CrossFitting
from unbag.report import summarise

HOSTILE = ("<script>alert(1)</script>", '$x_1$ & "co"', "日本の", "a\x1b[2J\x9b\x00\u202e\u2066\u2028")
FAST: dict[str, Any] = {"model": "linear", "validation": CrossFitting(2), "random_state": 0, "n_jobs": 1}


def fit(clf: Any, X: Any, y: Any, groups: Any = None, **weights: Any) -> Any:
    """Fit a classifier to little data, without warnings of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unbag.UnbagWarning)
        return clf.fit(X, y, groups, **weights)


@cache
def fitted(kind: str) -> tuple[Any, ...]:
    """Return a fitted classifier of a kind, the arguments of fit, and further arguments of a summary."""
    clf, X, y, groups, more = RUNS[kind]()
    return fit(clf, X, y, groups), X, y, groups, more


@cache
def summary_of(kind: str) -> dict[str, Any]:
    """Return the summary of a small run of a kind; callers leave it as it is."""
    clf, X, y, groups, more = fitted(kind)
    return summarise(clf, X, y, groups, title=f"A run: {kind}", **more)


def proportions() -> tuple[Any, ...]:
    """Counts of four classes with hostile names, in groups of several sizes; all rows have labels."""
    X, labels = blobs(200, k=4, spread=3.0)
    ids = np.repeat(np.arange(40), np.tile([3, 5, 7, 5], 10))
    inputs = {"instances": "people & <b>places</b>.csv", "groups": "cohorts.csv", "columns": ["age", "income"]}
    clf, y = unbag.AggregateClassifier(classes=HOSTILE, **FAST), unbag.target(ids, count(labels, ids, 4))
    return clf, X, y, None, {"inputs": inputs, "labels": np.array(HOSTILE)[labels]}


def bags() -> tuple[Any, ...]:
    """Bags without labels."""
    X, labels = blobs(240, k=2, spread=3.0)
    labels = labels & (np.random.default_rng(2).random(240) < 0.4)
    ids = np.arange(240) // 4
    z = [int(labels[ids == group].any()) for group in range(60)]
    return unbag.AggregateClassifier("multiple_instance", **FAST), X, unbag.target(ids, z), None, {"inputs": {}}


def compared(aggregate: Any, size: int) -> tuple[Any, ...]:
    """Pairs or triplets of three classes that share rows, and labels of the last fifty rows."""
    X, labels = blobs(120)
    groups = tuples(120, 120, size)
    clf = unbag.AggregateClassifier(aggregate, n_classes=3, **FAST)
    more: dict[str, Any] = {"inputs": {"pairs": "pairs.csv"}, "labels": labels[-50:]}
    if isinstance(aggregate, unbag.PairwiseSimilarity):
        more["labels"] = np.array(["low", "middle", "top"])[labels[-50:]]
    more["labelled_rows"] = np.arange(70, 120)
    return clf, X, aggregate.observe(labels, groups, 3), groups, more


def majority() -> tuple[Any, ...]:
    """A kind of observation that is neither counts nor yes or no."""
    X, labels = blobs(90)
    groups = unbag.Groups.from_sizes([3] * 30)
    observed = unbag.Majority().observe(labels, groups, 3)
    return unbag.AggregateClassifier(unbag.Majority(), n_classes=3, **FAST), X, observed, groups, {"inputs": {}}


def plain_labels() -> tuple[Any, ...]:
    """Labels of rows, none of which are held out."""
    X, labels = blobs(20)
    clf = unbag.AggregateClassifier(**{**FAST, "validation": CrossFitting(None, validation_fraction=0)})
    return clf, X, labels, None, {"inputs": {}}


def several() -> tuple[Any, ...]:
    """Counts and pairs in one run."""
    X, labels = blobs(120)
    ids, pairs = np.arange(120) // 5, tuples(120, 60, 2)
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    clf = unbag.AggregateClassifier(["label_proportions", "pairwise_similarity"], **FAST)
    return clf, X, [unbag.target(ids, count(labels, ids, 3)), same], [None, pairs], {"inputs": {}, "labels": labels}


RUNS = {
    "label_proportions": proportions,
    "multiple_instance": bags,
    "pairwise_similarity": lambda: compared(unbag.PairwiseSimilarity(), 2),
    "ordinal_triplet": lambda: compared(unbag.OrdinalTriplet(), 3),
    "majority": majority,
    "labels": plain_labels,
    "several": several,
}
