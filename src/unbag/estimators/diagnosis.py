"""What the checks of the package receive before and after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unbag.diagnostics import Context
from unbag.diagnostics.sampling import choose_rows
from unbag.estimators.training_data import TrainingData
from unbag.learners import Problem


def describe_data(data: TrainingData, columns: Sequence[str] | None) -> Context:
    """Return what checks of observations and rows receive."""
    sets, shares = [s.counting() for s in data.caller_sets], data.class_shares
    # Rows of groups of weight zero were left out on purpose, and do not count as rows in no group.
    in_groups, counted = (len(torch.cat([s.groups.members for s in own]).unique()) for own in (data.caller_sets, sets))
    return Context(
        sets,
        data.classes.tolist(),
        labels=[raw.labels is not None for raw in data.raw_sets],
        sampling=[raw.sampling for raw in data.raw_sets],
        class_shares=None if shares is None else shares.shares,
        classes_named=data.classes_are_named,
        borders_known=shares is not None or any(raw.aggregate.has_class_columns for raw in data.raw_sets),
        n_rows=len(data.rows) - (in_groups - counted),
        columns=columns,
        subjects=data.subjects,
    )


def describe_fit(
    clf: Any, data: TrainingData, problem: Problem, by_fold: Sequence[Tensor], seconds: float
) -> dict[str, Any]:
    """Return what checks of a fit receive in addition."""
    mixture, estimate, sets = clf.mixture_, clf.estimated_accuracy_, [s.counting() for s in data.caller_sets]
    n = len(sets)
    by_fold = [log_probs[:, clf.class_order_] for log_probs in by_fold] if len(by_fold) > 1 else []
    members = zip(data.caller_sets, clf.member_folds_, strict=True)
    return {
        "log_probs": problem.per_set(mixture.out_of_fold[:, clf.class_order_])[:n],
        "fold_log_probs": [[log_probs[s.groups.members] for log_probs in by_fold] for s in problem.sets[:n]],
        "folds": [of_members[raw.groups.segments.expand(raw.weights > 0)] for raw, of_members in members],
        "sample_log_probs": clf._predict_rows(data.rows, choose_rows(sets)),
        "interval": None if estimate is None else (estimate.low, estimate.high),
        "seconds": seconds,
        "time_limit": clf.time_limit,
    }
