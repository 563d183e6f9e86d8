"""Findings before and after a fit, from the checks of the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unbag._utils.findings import NO_ESTIMATE, Finding
from unbag.diagnostics.constant import best_constant
from unbag.diagnostics.examination import LeftOut, examine
from unbag.diagnostics.fit_diagnosis import (
    combine_findings,
    describe_divergence,
    diagnose_model,
    diagnose_sets,
    judge_estimate,
)
from unbag.diagnostics.sampling import choose_rows
from unbag.ensemble import Mixture
from unbag.estimators.training_data import TrainingData
from unbag.learners import Problem


def diagnose_data(data: TrainingData, names: Sequence[str] | None) -> list[Finding]:
    """Find what the observations do not identify, and what is suspicious about rows."""
    findings = diagnose_sets(data.raw_sets, data.observations, data.rows, names)
    return combine_findings(
        findings,
        data.raw_sets,
        data.observations,
        len(data.rows),
        names=data.classes_are_named,
        borders=data.class_shares is not None,
    )


def diagnose_fit(clf: Any, data: TrainingData, problem: Problem) -> list[Finding]:
    """Find what held-out groups show against a fitted model, or against the observations."""
    mixture: Mixture = clf.mixture_
    sets = data.caller_sets
    _, constant = best_constant(data.observations)
    findings = []
    if diverged := describe_divergence(mixture.score, data.observations, constant):
        findings.append(Finding("worse_than_constant", diverged))
    out_of_fold = problem.per_set(mixture.out_of_fold[:, clf.class_order_])
    folds: Sequence[torch.Tensor] = []
    if mixture.n_folds > 1:
        folds = [mixture.fold_log_probs(problem.X, fold)[:, clf.class_order_] for fold in range(mixture.n_folds)]
    position = torch.full((len(data.rows),), -1).index_copy_(0, problem.rows, torch.arange(len(problem.rows)))
    held_out = {}
    counting = [s.counting() for s in sets]
    for n, s in enumerate(counting):
        log_probs = out_of_fold[n]
        if bool(log_probs.isfinite().all()):
            by_fold = [fold[position[s.groups.members]] for fold in folds]
            held_out[n] = LeftOut(s, log_probs, by_fold, constant[n][sets[n].weights > 0])
    if folds:
        findings += [f for f in examine(list(held_out.values())) if not (diverged and f.kind == "worse_than_constant")]
    if (some := choose_rows(counting)) is not None:
        log_probs = clf._predict_rows(data.rows, some)
        findings += diagnose_model(log_probs, data.classes, data.class_shares, data.raw_sets, counting)
    if any(f.kind in NO_ESTIMATE for f in [*clf.diagnosis_, *findings]):
        clf.estimated_accuracy_ = None
    else:
        findings += judge_estimate(counting, held_out, clf.estimated_accuracy_)  # type: ignore[arg-type]
    return findings
