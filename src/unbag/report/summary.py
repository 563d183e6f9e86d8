"""Summary of a fitted classifier: everything a report shows, as JSON can hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.environment import versions
from unbag._utils.problems import Problem
from unbag.aggregates.symmetry import find_symmetry
from unbag.data.histograms import evenly, plain
from unbag.diagnostics.constant import best_constant
from unbag.estimators.inputs import read_rows, read_sets
from unbag.report.column_metrics import encoded_columns, least_confident, most_correlated, permutation_importance
from unbag.report.group_metrics import describe_set
from unbag.report.label_metrics import judge_labels
from unbag.report.scored_groups import Judged, judge
from unbag.training import Observations
from unbag.training.excerpts import EXCERPT_NUMBERS, some_groups, take_groups

FORMAT = 1

MOST_EPOCHS = 500
MOST_NAMES = 200


def summarise(
    clf: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    group_weights: Any = None,
    title: str,
    inputs: dict[str, Any],
    labels: Any = None,
    labelled_rows: Any = None,
    problems: Sequence[Problem] = (),
) -> dict[str, Any]:
    """Return what there is to say about a fitted classifier and its data; :func:`unbag.report.render` shows it.

    The size of what is returned does not grow with the number of rows or groups: of many, it holds counts in bins and
    samples, and says so.

    Parameters
    ----------
    clf
        A fitted :class:`unbag.AggregateClassifier`.
    X, y, groups
        What it was fitted to. X may have more rows than that, behind those of fit, where these have labels. Of rows on
        disk, so many are looked at as hold ten million numbers, in groups that were held out or chosen at random.
    group_weights
        Of the fit, if it had any: all means over groups are weighted.
    title
        What the report is called.
    inputs
        Where the data come from, for people: file names, columns, whatever helps; names to values.
    labels, labelled_rows
        Labels of rows, if there are any, that were not learned from; and which rows they are of, None for all.
    problems
        What is worth knowing of the files that the data come from.

    Returns
    -------
    dict
        With an entry ``format``, the number of the form it is written in. An entry ``comparison``, a list of dicts with
        ``method``, ``accuracy`` and ``seconds``, may be added.

    Examples
    --------
    >>> import unbag
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> pairs = unbag.Groups.from_tuples(np.arange(40).reshape(20, 2))
    >>> same = (X[::2, 0] > 0) == (X[1::2, 0] > 0)
    >>> clf = unbag.AggregateClassifier("pairwise_similarity", "mlp", n_classes=2, epochs=2, random_state=0)
    >>> summary = summarise(clf.fit(X, same, groups=pairs), X, same, pairs, title="Pairs", inputs={})
    >>> summary["data"]["rows"], summary["sets"][0]["kind"], summary["sets"][0]["groups"]
    (40, 'pairwise_similarity', 20)
    """
    # As probabilities, those far below others would be lost.
    rows = read_rows(clf, X, reset=False)
    n_rows = len(rows)
    seen = read_sets(clf.aggregate, y, groups, n_rows, group_weights=group_weights, sampling=clf.sampling)
    observations = with_rates([one.observations(clf.classes_) for one in seen], clf.error_rates_)
    left_out = [None if own is None else torch.tensor(own) for own in clf.held_out_]
    if not isinstance(rows, Tensor):
        most = EXCERPT_NUMBERS // math.prod(clf.input_shape_) // len(observations)
        chosen = [some_groups(one.groups, most, own) for one, own in zip(observations, left_out, strict=True)]
        left_out = [
            None if own is None else torch.isin(which, own).nonzero().flatten()
            for which, own in zip(chosen, left_out, strict=True)
        ]
        taken, rows, observations = take_groups(rows, observations, chosen)
        if labels is not None:
            labels, labelled_rows = _labels_of(taken.numpy(), labels, labelled_rows)
    of_models = clf._log_probs_of_models(rows)
    log_probs = clf._mix(of_models)
    classes = [str(name) for name in clf.classes_.tolist()]
    constant, trivial = best_constant(observations)
    folds = [None] * len(seen) if clf.folds_ is None else [torch.tensor(own) for own in clf.folds_]
    of_members = clf._out_of_fold_log_probs(of_models, observations)
    sets = [judge(*own) for own in zip(observations, of_members, trivial, left_out, folds, strict=True)]
    columns = encoded_columns(clf)
    shown = most_correlated(rows, columns, sets)
    of_labels = None
    if labels is not None:
        of_labels = judge_labels(log_probs, labels, labelled_rows, sets, classes=clf.classes_, symmetry=clf.symmetry_)
    matches = (one["score"] for one in clf.candidates_ if one["model"] == MATCH)
    match = next(matches, None) if len(sets) == 1 else None
    return plain(
        {
            "format": FORMAT,
            "title": title,
            "inputs": inputs,
            "data": _describe_data(clf, n_rows, observations, classes),
            "estimated_accuracy": None if clf.estimated_accuracy_ is None else asdict(clf.estimated_accuracy_),
            "training": _describe_training(clf, observations),
            "sets": [
                describe_set(one, classes, plain_labels=given.labels is not None) | {"match": match, "error_rate": rate}
                for one, given, rate in zip(sets, seen, clf.error_rates_, strict=True)
            ],
            "balance": _balance(sets, classes, constant),
            "columns": len(columns),
            "importance": permutation_importance(clf, rows, shown, sets),
            "least_confident": least_confident(rows, shown, sets),
            "labels": of_labels,
            "diagnosis": [
                {"kind": finding.kind, "message": finding.message, "fatal": finding.fatal} for finding in clf.diagnosis_
            ],
            "problems": [one.as_dict() for one in problems],
            "settings": _settings(clf),
            "versions": versions("scikit-learn"),
        }
    )


def _labels_of(taken: np.ndarray, labels: Any, labelled_rows: Any) -> tuple[Any, Any]:
    """Return the labels of those rows that were taken, and their places among these; None where there are none."""
    rows = np.arange(len(labels)) if labelled_rows is None else np.asarray(labelled_rows)
    inside = np.isin(rows, taken)
    return (np.asarray(labels)[inside], np.searchsorted(taken, rows[inside])) if inside.any() else (None, None)


def _describe_data(clf: Any, n_rows: int, observations: Sequence[Observations], classes: list[str]) -> dict[str, Any]:
    given = clf._column_names()
    names = [] if given is None else [str(name) for name in given]
    return {
        "rows": n_rows,
        "rows_in_groups": len(torch.cat([one.groups.members for one in observations]).unique()),
        "features": math.prod(clf.input_shape_),
        "input_shape": list(clf.input_shape_),
        "feature_names": names[:MOST_NAMES],
        "classes": classes,
        "symmetry": clf.symmetry_,
    }


def _describe_training(clf: Any, observations: Sequence[Observations]) -> dict[str, Any]:
    """Return the curves of the best replica, thinned where there are many epochs, and the scores of all."""
    scores = [np.nan if one["score"] is None else one["score"] for one in clf.replicas_]
    best = int(np.nanargmax(scores)) if not np.isnan(scores).all() else 0
    settings = read_settings(clf.get_params(deep=False), observations)
    shown = sorted({*evenly(len(clf.history_), MOST_EPOCHS).tolist(), clf.best_epoch_})
    return {
        "epochs": clf.n_iter_,
        "most_epochs": settings.epochs,
        "warm_up": settings.warm_up,
        "best_epoch": clf.best_epoch_,
        "scored": any(entry["score"] is not None for entry in clf.history_),
        "seconds": sum(entry["seconds"] for entry in clf.history_),
        "history": [
            {
                "epoch": entry["epoch"],
                "phase": entry["phase"],
                "loss": entry["loss"][best],
                "score": None if entry["score"] is None else entry["score"][best],
            }
            for entry in (clf.history_[place] for place in shown)
        ],
        "best_replica": best,
        "replicas": clf.replicas_,
        "models": len(clf.models_),
        "parameters": clf.models_[0].n_parameters,
        "scaling": clf.scaling_,
        "folds": None if clf.folds_ is None else 1 + max(fold for own in clf.folds_ for fold in own),
        "candidates": clf.candidates_,
        "temperature": clf.temperature_,
    }


def _balance(sets: Sequence[Judged], classes: list[str], constant: np.ndarray) -> list[dict[str, Any]]:
    """Compare the shares of the classes: predicted, with observations known, and as the observations tell them.

    Where all sets tell them, these are those of the best constant prediction.
    """
    predicted = torch.cat([one.log_probs for one in sets]).exp()
    called = torch.bincount(predicted.argmax(1), minlength=len(classes)) / len(predicted)
    after = torch.cat([one.posterior for one in sets]).nanmean(0)
    seen = [one.observations for one in sets if one.observations.aggregate.size is None]
    telling = [one for one in seen if find_symmetry([one]) == "none"]
    implied: Sequence[float | None] | np.ndarray = [None] * len(classes)
    if telling:
        implied = constant if len(telling) == len(sets) else best_constant(telling)[0]
    return [
        {"class": name, "predicted": mean, "called": share, "known": known, "implied": implied_share}
        for name, mean, share, known, implied_share in zip(
            classes, predicted.mean(0).tolist(), called.tolist(), after.tolist(), implied, strict=True
        )
    ]


def _settings(clf: Any) -> dict[str, Any]:
    """Return the parameters of the classifier; what is code is told by its name."""
    given = clf.get_params(deep=False)
    return {
        name: getattr(value, "__name__", None)
        or (type(value).__name__ if callable(value) or hasattr(value, "get_params") else value)
        for name, value in given.items()
    }
