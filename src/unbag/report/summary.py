"""Summary of a fitted classifier: everything a report shows, in values that JSON has."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from unbag._utils.environment import versions
from unbag._utils.problems import Problem
from unbag.aggregates.symmetry import find_symmetry
from unbag.data.histograms import plain
from unbag.learners.constant import fit_null_model
from unbag.report.columns import encoded_columns, most_correlated, permutation_importance
from unbag.report.metrics import ScoredGroups, compare_labels, describe_set, find_held_out, score_groups
from unbag.training.group_subsets import EXCERPT_NUMBERS, some_groups, take_groups

FORMAT = 3

MAX_NAMES = 200


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
    """Summarise a fitted classifier and its data for :func:`unbag.report.render`.

    ``X``, ``y``, ``groups`` and ``group_weights`` are the arguments of ``fit``; X may have further rows at its end. Of
    rows on disk, at most ten million numbers are read, in groups that were held out or chosen at random. ``inputs``
    describe where the data come from, ``problems`` what is worth knowing about the files. ``labels`` were not used in
    the fit; ``labelled_rows`` are the numbers of their rows, None for all.

    The size of the summary does not grow with the number of rows or groups: of many, it holds histograms and samples.
    A list of dicts with ``method``, ``accuracy`` and ``seconds`` may be added as ``comparison``.
    """
    rows = clf._read_rows(X)
    n_rows = len(rows)
    observations = clf._read_observations(y, groups, n_rows, group_weights=group_weights, sampling=clf.sampling)
    folds = clf.member_folds_
    if not isinstance(rows, Tensor):
        most = EXCERPT_NUMBERS // math.prod(clf.input_shape_) // len(observations)
        held_out = [find_held_out(s, f) for s, f in zip(observations, folds, strict=True)]
        chosen = [some_groups(s.groups, most, first) for s, first in zip(observations, held_out, strict=True)]
        folds = [f[s.groups.segments.take(c)[0]] for f, s, c in zip(folds, observations, chosen, strict=True)]
        taken, rows, observations = take_groups(rows, observations, chosen)
        if labels is not None:
            numbers = np.arange(len(labels)) if labelled_rows is None else np.asarray(labelled_rows)
            inside = np.isin(numbers, taken.numpy())
            labels = np.asarray(labels)[inside] if inside.any() else None
            labelled_rows = np.searchsorted(taken.numpy(), numbers[inside])
    classes, names = [str(name) for name in clf.classes_.tolist()], clf._column_names()
    performance = None if clf.estimated_performance_ is None else asdict(clf.estimated_performance_)
    for name, figures in zip(classes, performance["classes"] if performance else (), strict=False):
        figures["class"] = name
    constant, by_constant = fit_null_model(observations)
    sets = [score_groups(clf, rows, *triple) for triple in zip(observations, folds, by_constant, strict=True)]
    columns = encoded_columns(clf)
    shown = most_correlated(rows, columns, sets)
    return plain(
        {
            "format": FORMAT,
            "title": title,
            "inputs": inputs,
            "data": {
                "rows": n_rows,
                "rows_in_groups": len(torch.cat([s.groups.members for s in observations]).unique()),
                "features": math.prod(clf.input_shape_),
                "input_shape": list(clf.input_shape_),
                "feature_names": [] if names is None else [str(name) for name in names[:MAX_NAMES]],
                "classes": classes,
                "symmetry": clf.symmetry_,
            },
            "estimated_accuracy": None if clf.estimated_accuracy_ is None else asdict(clf.estimated_accuracy_),
            "estimated_performance": performance,
            "training": {
                "seconds": sum(c["seconds"] for c in clf.candidates_),
                "folds": clf.mixture_.n_folds,
                "candidates": clf.candidates_,
            },
            "sets": [
                describe_set(s, classes) | {"error_rate": rate} for s, rate in zip(sets, clf.error_rates_, strict=True)
            ],
            "balance": _balance(sets, classes, constant),
            "columns": len(columns),
            "importance": permutation_importance(clf, rows, shown, sets),
            "labels": None if labels is None else compare_labels(clf, rows, labels, labelled_rows, sets),
            "diagnosis": [asdict(finding) for finding in clf.diagnosis_],
            "problems": [problem.as_dict() for problem in problems],
            "settings": {name: _describe_setting(value) for name, value in clf.get_params(deep=False).items()},
            "versions": versions("scikit-learn"),
        }
    )


def _balance(sets: Sequence[ScoredGroups], classes: list[str], constant: Tensor) -> list[dict[str, Any]]:
    """Compare the shares of the classes: predicted, with observations known, and implied by the observations.

    Where all sets imply them, they are those of the best constant prediction.
    """
    probs = torch.cat([s.log_probs for s in sets]).exp()
    called = torch.bincount(probs.argmax(1), minlength=len(classes)) / len(probs)
    known = torch.cat([s.posterior for s in sets]).nanmean(0)
    candidates = [s.observations for s in sets if s.observations.aggregate.size is None]
    identifying = [s for s in candidates if find_symmetry([s]) == "none"]
    implied: list[float | None] = [None] * len(classes)
    if identifying:
        implied = (constant if len(identifying) == len(sets) else fit_null_model(identifying)[0]).tolist()
    names = ("class", "predicted", "called", "known", "implied")
    columns = (classes, probs.mean(0).tolist(), called.tolist(), known.tolist(), implied)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _describe_setting(value: Any) -> Any:
    """Return a parameter of the classifier as JSON has it; code is described by its name."""
    if isinstance(value, BaseEstimator):
        return " ".join(repr(value).split())
    return getattr(value, "__name__", None) or (type(value).__name__ if callable(value) else value)
