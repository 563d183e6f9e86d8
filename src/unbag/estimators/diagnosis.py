"""What the checks of the package receive before and after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from unbag.diagnostics import Context
from unbag.diagnostics.sampling import choose_rows
from unbag.estimators.training_data import TrainingData
from unbag.learners import Problem
from unbag.training.excerpts import excerpt


def describe_data(data: TrainingData, columns: Sequence[str] | None) -> tuple[Context, Context]:
    """Return what checks of observations receive, and those of rows, which may be an excerpt."""
    sets = [s.counting() for s in data.caller_sets]
    counted = any(raw.labels is not None or raw.aggregate.has_class_columns for raw in data.raw_sets)
    context = Context(
        sets,
        data.classes.tolist(),
        [raw.sampling for raw in data.raw_sets],
        class_shares=None if data.class_shares is None else data.class_shares.shares,
        classes_named=data.classes_are_named,
        borders_known=counted or data.class_shares is not None,
        n_rows=len(data.rows),
        n_groups=sum(len(s.groups) for s in sets),
        columns=columns,
        subjects=data.subjects,
    )
    X, excerpts = excerpt(data.rows, sets)
    whole = len(X) == len(data.rows)
    return context, replace(context, X=X.double(), sets=excerpts, subjects=data.subjects if whole else None)


def describe_fit(context: Context, clf: Any, data: TrainingData, problem: Problem) -> Context:
    """Return what checks of a fit receive."""
    held_out = torch.full((len(data.rows), len(data.classes)), torch.nan)
    held_out[problem.rows] = clf.mixture_.out_of_fold[:, clf.class_order_]
    by_fold = []
    if len(clf.mixture_.candidates[0].models) > 1:
        for log_probs in clf.mixture_.fold_log_probs(problem.X):
            by_fold.append(torch.full_like(held_out, torch.nan))
            by_fold[-1][problem.rows] = log_probs[:, clf.class_order_]
    folds = torch.full((len(data.rows),), -1)
    for number, rows in enumerate(clf.fold_rows_):
        folds[rows] = number
    sample, estimate = clf._predict_rows(data.rows, choose_rows(context.sets)), clf.estimated_accuracy_
    interval = None if estimate is None else (estimate.low, estimate.high)
    return replace(
        context, log_probs=held_out, fold_log_probs=by_fold, folds=folds, sample_log_probs=sample, interval=interval
    )
