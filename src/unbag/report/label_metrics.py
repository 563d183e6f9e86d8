"""Metrics on labels of rows that were not used in the fit: accuracy, confusion, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support
from torch import Tensor

from unbag.aggregates.symmetry import Symmetry
from unbag.estimators.class_names import match_classes, number_labels, read_labels
from unbag.report.group_metrics import reliability
from unbag.report.scored_groups import ScoredGroups

MAX_MATRIX = 20
"""Number of classes up to which the confusion matrix is shown."""
MAX_MISTAKES = 10


def compare_labels(
    clf: Any, X: Tensor, labels: Any, labelled_rows: Any, sets: Sequence[ScoredGroups]
) -> dict[str, Any]:
    """Compare predictions with labels, under the best of the permutations of classes that the observations allow.

    Parameters
    ----------
    clf, X
        The fitted classifier, and all rows as numbers.
    labels, labelled_rows
        Labels and the numbers of their rows; None for all rows.
    sets
        Scored groups, whose labelled members are also compared given their observation.
    """
    names, numbers, rows = _read(clf, labels, labelled_rows, len(X))
    k, probs = len(names), clf._predict_rows(X, rows).exp()
    joint = torch.zeros(k, k, dtype=torch.float64).index_add_(0, numbers, probs).numpy()
    order, classes = match_classes(joint, clf.symmetry_), np.arange(k)
    confidence, guessed = probs[:, order].max(1)
    truth, predicted = numbers.numpy(), guessed.numpy()
    matrix = confusion_matrix(truth, predicted, labels=classes)  # (labels, predictions)
    bins = reliability(confidence.numpy().clip(0, 1), truth == predicted)
    precision, recall, *_ = precision_recall_fscore_support(truth, predicted, labels=classes, zero_division=np.nan)
    by_class = zip(names, matrix.sum(1), matrix.sum(0), recall, precision, strict=True)
    return {
        "rows": len(rows),
        "rows_in_groups": int(torch.isin(rows, torch.cat([s.observations.groups.members for s in sets])).sum()),
        "renamed": bool((order != classes).any()) or names != [str(name) for name in clf.classes_.tolist()],
        "classes": [dict(zip(("class", "rows", "called", "found", "correct"), row, strict=True)) for row in by_class],
        "accuracy": accuracy_score(truth, predicted),
        "most_common": matrix.sum(1).max() / len(rows),
        "known_observation": [_compare_given_observation(s, numbers, rows, order, len(X)) for s in sets],
        "calibration": bins,
        "calibration_error": sum(b["n"] * abs(b["predicted"] - b["happened"]) for b in bins) / len(rows),
        "confusion": matrix if k <= MAX_MATRIX else None,
        "mistakes": _list_mistakes(matrix, names),
    }


def _read(clf: Any, labels: Any, labelled_rows: Any, n_rows: int) -> tuple[list[str], Tensor, Tensor]:
    """Return the class names, the number of each label among them, and the labelled rows."""
    known = read_labels(labels)
    rows = torch.arange(n_rows) if labelled_rows is None else torch.as_tensor(np.asarray(labelled_rows)).long()
    if len(known) != len(rows):
        expected = f"{n_rows} rows of X" if labelled_rows is None else f"{len(rows)} labelled_rows"
        raise ValueError(f"labels has {len(known)} entries for {expected}; pass one for each")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        raise ValueError(
            f"labelled_rows must be row numbers from 0 to {n_rows - 1}, got {int(rows.min())} to {int(rows.max())}"
        )
    distinct, classes = np.unique(known), clf.classes_
    if clf.symmetry_ in ("any", "reversal") and not set(distinct.tolist()) <= set(classes.tolist()):
        classes = _name_by_labels(distinct, len(classes), clf.symmetry_)
    return [str(name) for name in classes.tolist()], number_labels(known, classes), rows


def _name_by_labels(distinct: np.ndarray, k: int, symmetry: Symmetry) -> np.ndarray:
    """Return names of unnamed classes from labels; a class without a label gets a placeholder."""
    if len(distinct) > k or (symmetry == "reversal" and len(distinct) < k):
        raise ValueError(
            f"labels contain {len(distinct)} classes, {distinct[:10].tolist()}, but the classifier has {k}; name its "
            "classes with name_classes first"
        )
    names = np.empty(k, dtype=object)
    names[:] = [*distinct.tolist(), *(f"(no label, {place + 1})" for place in range(k - len(distinct)))]
    return names


def _compare_given_observation(
    s: ScoredGroups, numbers: Tensor, rows: Tensor, order: np.ndarray, n_rows: int
) -> dict[str, Any] | None:
    """Return the accuracy on labelled members before and after the observation is known; None without such members."""
    truth = torch.full((n_rows,), -1).index_copy_(0, rows, numbers)[s.observations.groups.members]
    use = (truth >= 0) & ~s.posterior.isnan().any(1)
    if not bool(use.any()):
        return None
    before, after = (accuracy_score(truth[use], p[use][:, order].argmax(1)) for p in (s.log_probs, s.posterior))
    return {"memberships": int(use.sum()), "before": before, "after": after}


def _list_mistakes(matrix: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
    """List the most frequent pairs of a label and a wrong prediction."""
    wrong = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_MISTAKES]
    pairs = [pair for pair in zip(*np.unravel_index(order, wrong.shape), strict=True) if wrong[pair]]
    return [{"label": names[label], "predicted": names[guess], "rows": wrong[label, guess]} for label, guess in pairs]
