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
from unbag.training import Observations
from unbag.training.excerpts import excerpt


def describe_data(data: TrainingData, columns: Sequence[str] | None) -> tuple[Context, Context | None]:
    """Return what checks of observations receive, and those of rows: an excerpt, or None for labels of rows alone."""
    sets = [s.counting() for s in data.caller_sets]
    # Rows of groups of weight zero were left out on purpose, and do not count as rows in no group.
    left_out = _count_rows(data.caller_sets) - _count_rows(sets)
    counted = any(raw.labels is not None or raw.aggregate.has_class_columns for raw in data.raw_sets)
    context = Context(
        sets,
        data.classes.tolist(),
        labels=[raw.labels is not None for raw in data.raw_sets],
        sampling=[raw.sampling for raw in data.raw_sets],
        class_shares=None if data.class_shares is None else data.class_shares.shares,
        classes_named=data.classes_are_named,
        borders_known=counted or data.class_shares is not None,
        n_rows=len(data.rows) - left_out,
        n_groups=sum(len(s.groups) for s in sets),
        columns=columns,
        subjects=data.subjects,
    )
    if all(context.labels):
        return context, None
    X, excerpts = excerpt(data.rows, sets)
    whole = len(X) == len(data.rows)
    return context, replace(context, X=X.double(), sets=excerpts, subjects=data.subjects if whole else None)


def _count_rows(sets: Sequence[Observations]) -> int:
    return len(torch.cat([s.groups.members for s in sets]).unique())


def describe_fit(context: Context, clf: Any, data: TrainingData, problem: Problem, seconds: float) -> Context:
    """Return what checks of a fit receive."""
    mixture, estimate = clf.mixture_, clf.estimated_accuracy_
    by_fold = []
    for fold in range(mixture.n_folds if mixture.n_folds > 1 else 0):
        by_fold.append(torch.full((len(data.rows), len(data.classes)), torch.nan))
        by_fold[-1][problem.rows] = mixture.fold_log_probs(problem.X, fold)[:, clf.class_order_]
    return replace(
        context,
        log_probs=problem.per_set(mixture.out_of_fold[:, clf.class_order_])[: len(context.sets)],
        fold_log_probs=by_fold,
        folds=[
            folds[raw.groups.segments.expand(raw.weights > 0)]
            for raw, folds in zip(data.caller_sets, clf.member_folds_, strict=True)
        ],
        sample_log_probs=clf._predict_rows(data.rows, choose_rows(context.sets)),
        interval=None if estimate is None else (estimate.low, estimate.high),
        seconds=seconds,
        time_limit=clf.time_limit,
    )
