"""Diagnosis of a fit: what observations cannot tell, before it, and what left-out groups tell, after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from unbag._utils.findings import Finding, UnbagWarning
from unbag.aggregates.class_shares import ClassShares
from unbag.data.row_source import Rows
from unbag.diagnostics.diagnosis import diagnose_checked, drop_answered, find_rows_without_group
from unbag.diagnostics.examination import LeftOut
from unbag.diagnostics.row_diagnosis import diagnose_rows
from unbag.diagnostics.sampling import find_unexpected_answers, find_unused_classes, says_random
from unbag.estimators.inputs import RawObservations
from unbag.training import Observations
from unbag.training.excerpts import excerpt

FEW_TO_JUDGE = 40
"""Up to so many held-out groups, an estimate of accuracy is rough."""
WIDE = 0.02
"""Half-width of its interval above which an estimate of accuracy is rough."""


class DivergenceWarning(UnbagWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A fitted model that explains groups worse than one which says the same of every row."""


def diagnose_sets(
    sets: Sequence[RawObservations],
    observations: Sequence[Observations],
    rows: Rows,
    names: Sequence[str] | None,
) -> list[Finding]:
    """Look for what each set cannot tell, and what is suspicious about the rows; labels of rows tell all.

    Parameters
    ----------
    sets, observations
        As they were given, and the same as training takes them; there may be more of the latter.
    rows, names
        Features of all rows, and the names of their columns.
    """
    own = [one.counting() for one in observations[: len(sets)]]
    of_groups = [(given, one) for given, one in zip(sets, own, strict=True) if given.labels is None]
    findings = [finding for given, one in of_groups for finding in diagnose_checked(one, given.sampling)]
    n_groups = sum(len(one.groups) for one in own)
    return [*findings, *(diagnose_rows(*excerpt(rows, own), names, n_groups) if of_groups else [])]


def combine_findings(
    findings: Sequence[Finding],
    sets: Sequence[RawObservations],
    observations: Sequence[Observations],
    n_rows: int,
    *,
    names: bool,
    borders: bool,
) -> list[Finding]:
    """Return what is left of findings where sets stand beside each other; a single set must tell something.

    Parameters
    ----------
    findings
        Of each set by itself, and of rows.
    sets, observations
        As in :func:`diagnose_sets`.
    n_rows
        How many rows there are.
    names, borders
        Whether the names of classes, and the borders between ordered ones, are known from elsewhere.
    """
    counted = any(one.labels is not None or one.aggregate.outcome.endswith("_counts") for one in sets)
    findings = drop_answered(findings, names=names, borders=borders or counted)
    # What one set leaves out another may hold.
    findings = [one for one in findings if one.kind != "rows_without_group"]
    findings += find_rows_without_group([one.groups for one in observations], n_rows)
    if len(sets) == 1 and (fatal := [one.message for one in findings if one.fatal]):
        raise ValueError(f"there is nothing to learn from these observations: {'; '.join(fatal)}")
    return findings


def describe_divergence(
    score: float, observations: Sequence[Observations], by_constant: Sequence[Tensor]
) -> str | None:
    """Say where a constant prediction, the shares of the classes, explains groups better than the model, if it does.

    Parameters
    ----------
    score
        Log-likelihood per group of the model.
    observations, by_constant
        All sets, and the log-likelihood of their groups under the best constant prediction.
    """
    means = [one.mean(own).item() for one, own in zip(observations, by_constant, strict=True)]
    constant = float(np.average(means, weights=[one.weight for one in observations]))
    if not score < constant:
        return None
    return (
        f"the model explains groups worse than a constant prediction: log-likelihood {score:,.4g} per group against "
        f"{constant:,.4g}; do not rely on it: train for longer or with a lower learning_rate, and look at the scale of "
        "the features"
    )


def judge_estimate(
    observations: Sequence[Observations], out_of_fold: Mapping[int, LeftOut], estimate: Any
) -> list[Finding]:
    """Say where left-out groups tell only roughly how often predictions are right; labels of rows have an interval.

    That is, where there are few of them, or where even the interval over groups, which takes the model's own
    uncertainty for granted, is wide.
    """
    judges = [observations[place] for place in out_of_fold if place < len(observations)]
    n = sum(len(one.counting().groups) for one in judges)
    if estimate is None or all(one.groups.max_size == 1 for one in judges):
        return []
    if n > FEW_TO_JUDGE and estimate.high - estimate.low <= 2 * WIDE:
        return []
    message = (
        f"{n} left-out groups tell how often predictions for new rows are right within about ten points; label some "
        "rows to check by, or collect more groups"
    )
    return [Finding("rough_estimate", message)]


def diagnose_model(
    log_probs: Tensor,
    classes: np.ndarray,
    shares: ClassShares | None,
    sets: Sequence[RawObservations],
    observations: Sequence[Observations],
) -> list[Finding]:
    """Look for signs in a model that groups were chosen by their answer, or that classes were not found.

    Parameters
    ----------
    log_probs
        What it says of some rows, ``(rows, classes)``.
    classes, shares
        Their names, and their shares where these are known.
    sets, observations
        As in :func:`diagnose_sets`, without groups of weight zero.
    """
    findings = [*find_unused_classes(log_probs, classes, None if shares is None else shares.shares)]
    for given, one in zip(sets, observations, strict=True):
        if not says_random(given.sampling):
            findings += find_unexpected_answers(one, log_probs)
    return findings
