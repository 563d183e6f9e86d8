"""Metrics on labelled rows of a classifier that learned without them: accuracy, confusion, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates.symmetry import Symmetry
from unbag.estimators.class_matching import match_classes
from unbag.estimators.inputs import number_labels, read_labels
from unbag.report.group_metrics import reliability
from unbag.report.scored_groups import ScoredGroups

# A larger matrix can neither be drawn nor read; the most frequent mistakes are listed all the same.
LARGEST_MATRIX = 20
MOST_MISTAKES = 10


def judge_labels(
    log_probs: Tensor,
    labels: Any,
    labelled_rows: Any,
    sets: Sequence[ScoredGroups],
    *,
    classes: np.ndarray,
    symmetry: Symmetry,
) -> dict[str, Any]:
    """Compare predictions with labels, under the best of the renamings that observations leave open.

    Parameters
    ----------
    log_probs
        Of all rows, ``(n, k)``.
    labels, labelled_rows
        Labels, and the numbers of the rows that have them; None where all have one.
    sets
        What was observed: the members of these groups are judged with the observation known, too.
    classes, symmetry
        Names of the classes, and which of them the observations leave interchangeable.
    """
    names, numbers, rows = _read(labels, labelled_rows, len(log_probs), classes, symmetry)
    k = len(names)
    probs = log_probs[rows].exp()
    together = torch.zeros(k, k, dtype=torch.float64).index_add_(0, numbers, probs).numpy()
    order = match_classes(together, symmetry)
    probs = probs[:, order]
    guessed = probs.argmax(1)
    right = guessed == numbers
    matrix = torch.bincount(numbers * k + guessed, minlength=k * k).view(k, k)  # (labels, predictions)
    bins = reliability(probs.max(1).values.numpy().clip(0, 1), right.numpy())
    return {
        "rows": len(rows),
        "rows_in_groups": len(_in_groups(rows, sets)),
        "renamed": bool((order != np.arange(k)).any()) or names != [str(name) for name in classes.tolist()],
        "classes": _by_class(matrix, names),
        "accuracy": right.double().mean().item(),
        "most_common": matrix.sum(1).max().item() / len(rows),
        "known_observation": _known_observation(numbers, rows, order, sets, len(log_probs)),
        "calibration": bins,
        "calibration_error": sum(one["n"] * abs(one["predicted"] - one["happened"]) for one in bins) / len(rows),
        "confusion": matrix.tolist() if k <= LARGEST_MATRIX else None,
        "mistakes": _mistakes(matrix, names),
    }


def _read(
    labels: Any, labelled_rows: Any, n_rows: int, classes: np.ndarray, symmetry: Symmetry
) -> tuple[list[str], Tensor, Tensor]:
    """Return names of classes, the number of each label among them, and the labelled rows."""
    known = read_labels(labels)
    rows = torch.arange(n_rows) if labelled_rows is None else torch.as_tensor(np.asarray(labelled_rows)).long()
    if len(known) != len(rows):
        of_what = f"{n_rows} rows of X" if labelled_rows is None else f"{len(rows)} labelled_rows"
        raise ValueError(f"labels has {len(known)} entries for {of_what}; give one for each")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n_rows:
        raise ValueError(
            f"labelled_rows must be row numbers from 0 to {n_rows - 1}, got {int(rows.min())} to {int(rows.max())}"
        )
    distinct = np.unique(known)
    if symmetry != "none" and not set(distinct.tolist()) <= set(classes.tolist()):
        classes = _names_from(distinct, len(classes), symmetry)
    return [str(name) for name in classes.tolist()], number_labels(known, classes), rows


def _names_from(distinct: np.ndarray, k: int, symmetry: Symmetry) -> np.ndarray:
    """Take the names of unnamed classes from labels; a class that none of them is of stays without."""
    if len(distinct) > k or (symmetry == "reversal" and len(distinct) < k):
        raise ValueError(
            f"labels are of {len(distinct)} classes, {distinct[:10].tolist()}, but the classifier has {k}; "
            "name its classes with name_classes first"
        )
    names = np.empty(k, dtype=object)
    names[:] = [*distinct.tolist(), *(f"(no label, {place + 1})" for place in range(k - len(distinct)))]
    return names


def _in_groups(rows: Tensor, sets: Sequence[ScoredGroups]) -> Tensor:
    members = torch.cat([one.observations.groups.members for one in sets])
    return rows[torch.isin(rows, members)]


def _known_observation(
    numbers: Tensor, rows: Tensor, order: np.ndarray, sets: Sequence[ScoredGroups], n_rows: int
) -> list[Any]:
    """Return for each set how many labelled members are right before and after the observation is known."""
    label_of_row = torch.full((n_rows,), -1).index_copy_(0, rows, numbers)
    observations: list[dict[str, Any] | None] = []
    for one in sets:
        truth = label_of_row[one.observations.groups.members]
        use = (truth >= 0) & ~one.posterior.isnan().any(1)
        if not bool(use.any()):
            observations.append(None)
            continue
        before = one.log_probs[use][:, order].argmax(1) == truth[use]
        after = one.posterior[use][:, order].argmax(1) == truth[use]
        shares = {"before": before.double().mean().item(), "after": after.double().mean().item()}
        observations.append({"memberships": int(use.sum()), **shares})
    return observations


def _by_class(matrix: Tensor, names: list[str]) -> list[dict[str, Any]]:
    of_class, called, right = matrix.sum(1), matrix.sum(0), matrix.diagonal()
    return [
        {
            "class": name,
            "rows": int(of_class[j]),
            "called": int(called[j]),
            "found": int(right[j]) / int(of_class[j]) if of_class[j] else None,
            "correct": int(right[j]) / int(called[j]) if called[j] else None,
        }
        for j, name in enumerate(names)
    ]


def _mistakes(matrix: Tensor, names: list[str]) -> list[dict[str, Any]]:
    wrong = matrix.clone().fill_diagonal_(0)
    k = len(names)
    order = wrong.flatten().argsort(descending=True, stable=True)[:MOST_MISTAKES].tolist()
    return [
        {"label": names[place // k], "predicted": names[place % k], "rows": int(wrong.flatten()[place])}
        for place in order
        if wrong.flatten()[place] > 0
    ]
