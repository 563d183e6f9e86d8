"""Metrics on labels of rows that were not used in the fit: accuracy, confusion, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, precision_score, recall_score
from torch import Tensor

from unbag.aggregates.symmetry import Symmetry
from unbag.estimators.class_matching import match_classes
from unbag.estimators.inputs import number_labels, read_labels
from unbag.report.group_metrics import reliability
from unbag.report.scored_groups import ScoredGroups

MAX_MATRIX = 20
"""Number of classes up to which the confusion matrix is shown."""
MAX_MISTAKES = 10


def describe_labels(
    clf: Any, log_probs: Tensor, labels: Any, labelled_rows: Any, sets: Sequence[ScoredGroups]
) -> dict[str, Any]:
    """Compare predictions with labels, under the best of the permutations of classes that the observations allow.

    Parameters
    ----------
    clf
        The fitted classifier.
    log_probs
        Log-probabilities of all rows, shape ``(rows, classes)``.
    labels, labelled_rows
        Labels and the numbers of their rows; None for all rows.
    sets
        Scored groups, whose labelled members are also compared given their observation.
    """
    names, numbers, rows = _read(clf, labels, labelled_rows, len(log_probs))
    k, probs = len(names), log_probs[rows].exp()
    joint = torch.zeros(k, k, dtype=torch.float64).index_add_(0, numbers, probs).numpy()
    order = match_classes(joint, clf.symmetry_)
    probs = probs[:, order]
    truth, predicted = numbers.numpy(), probs.argmax(1).numpy()
    every = np.arange(k)
    matrix = confusion_matrix(truth, predicted, labels=every)  # (labels, predictions)
    options: dict[str, Any] = {"labels": every, "average": None, "zero_division": np.nan}
    bins = reliability(probs.max(1).values.numpy().clip(0, 1), truth == predicted)
    by_class = zip(
        *(names, matrix.sum(1).tolist(), matrix.sum(0).tolist()),
        *(metric(truth, predicted, **options).tolist() for metric in (recall_score, precision_score)),
        strict=True,
    )
    return {
        "rows": len(rows),
        "rows_in_groups": int(torch.isin(rows, torch.cat([s.observations.groups.members for s in sets])).sum()),
        "renamed": bool((order != every).any()) or names != [str(name) for name in clf.classes_.tolist()],
        "classes": [dict(zip(("class", "rows", "called", "found", "correct"), row, strict=True)) for row in by_class],
        "accuracy": accuracy_score(truth, predicted),
        "most_common": matrix.sum(1).max() / len(rows),
        "known_observation": _compare_posterior(numbers, rows, order, sets, len(log_probs)),
        "calibration": bins,
        "calibration_error": sum(b["n"] * abs(b["predicted"] - b["happened"]) for b in bins) / len(rows),
        "confusion": matrix.tolist() if k <= MAX_MATRIX else None,
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
    if clf.symmetry_ != "none" and not set(distinct.tolist()) <= set(classes.tolist()):
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


def _compare_posterior(
    numbers: Tensor, rows: Tensor, order: np.ndarray, sets: Sequence[ScoredGroups], n_rows: int
) -> list[dict[str, Any] | None]:
    """Return for each set the accuracy on labelled members before and after the observation is known."""
    truth_of_row = torch.full((n_rows,), -1).index_copy_(0, rows, numbers)
    compared: list[dict[str, Any] | None] = []
    for s in sets:
        truth = truth_of_row[s.observations.groups.members]
        use = (truth >= 0) & ~s.posterior.isnan().any(1)
        before, after = (
            (probs[use][:, order].argmax(1) == truth[use]).double().mean().item()
            for probs in (s.log_probs, s.posterior)
        )
        found = {"memberships": int(use.sum()), "before": before, "after": after}
        compared.append(found if found["memberships"] else None)
    return compared


def _list_mistakes(matrix: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
    """List the most frequent pairs of a label and a wrong prediction."""
    wrong = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_MISTAKES]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [
        {"label": names[label], "predicted": names[predicted], "rows": int(wrong[label, predicted])}
        for label, predicted in pairs
        if wrong[label, predicted]
    ]
