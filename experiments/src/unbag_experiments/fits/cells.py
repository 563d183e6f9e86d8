"""The cells of the table of default fits: a method, on a set, in groups of a size; and what is measured of each."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from unbag import Groups, LabelProportions
from unbag_experiments.fits.grouping import count, group, split
from unbag_experiments.fits.methods import learn, rank_bags
from unbag_experiments.fits.plan import Cell
from unbag_experiments.fits.sets import Data
from unbag_experiments.splits import split_fold


def run(cell: Cell, data: Data) -> dict[str, Any]:
    """Run a cell, and return what was measured."""
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measured = _run_bags(cell, data) if cell.in_bags else _run_table(cell, data)
    messages = sorted({str(one.message) for one in caught})
    return {**measured, "warnings": messages, "seconds": round(time.monotonic() - start, 2)}


def _run_table(cell: Cell, data: Data) -> dict[str, Any]:
    k = data.n_classes
    train, test = split(data.y, cell.seed)
    (ids, counts), (new_ids, new_counts) = (_observe(data.X[rows], data.y[rows], k, cell) for rows in (train, test))
    learned = learn(cell.method, data.X[train], ids, counts, data.X[test], seed=cell.seed)
    estimate = learned.estimate
    return {
        "rows": {"train": len(train), "test": len(test)},
        "groups": len(counts),
        **measure(learned.probs, data.y[test]),
        "log_likelihood": explain(learned.probs, new_ids, new_counts),
        "estimated_accuracy": None if estimate is None else float(getattr(estimate, "value", estimate)),
        "interval": [float(estimate.low), float(estimate.high)] if hasattr(estimate, "low") else None,
    }


def _observe(X: np.ndarray, labels: np.ndarray, k: int, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    assert cell.size is not None
    assert cell.grouping is not None
    ids = group(X, cell.size, cell.grouping, cell.seed)
    return ids, count(ids, labels, k)


def measure(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return accuracy, area under the ROC curve, and by how much predictions are surer than they are right.

    With more than two classes the area is the mean over classes, each against the rest.

    Examples
    --------
    >>> measure(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1]))["accuracy"]
    0.6666666666666666
    """
    right = float((probs.argmax(1) == labels).mean())
    scores = probs[:, 1] if probs.shape[1] == 2 else probs
    return {
        "accuracy": right,
        "auc": float(roc_auc_score(labels, scores, multi_class="ovr")),
        "calibration": float(probs.max(1).mean()) - right,
    }


def explain(probs: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> float | None:
    """Return the log-likelihood per group of groups of test rows; None where one of them should be impossible."""
    groups = Groups.from_ids(torch.from_numpy(ids))
    log_probs = torch.from_numpy(probs).double().log()
    log_likelihood = LabelProportions().log_likelihood(log_probs, groups, torch.from_numpy(counts)).mean().item()
    return log_likelihood if np.isfinite(log_likelihood) else None


def _run_bags(cell: Cell, data: Data) -> dict[str, Any]:
    assert data.bags is not None
    sizes = np.bincount(data.bags)
    fold = split_fold(data.y, cell.seed)
    train, test = np.sort(np.concatenate([fold.train, fold.validation])), fold.test
    rows = [np.flatnonzero(np.isin(data.bags, which)) for which in (train, test)]
    scores, threshold = rank_bags(
        cell.method,
        data.X[rows[0]],
        sizes[train],
        data.y[train],
        X_new=data.X[rows[1]],
        new_sizes=sizes[test],
        seed=cell.seed,
    )
    return {
        "rows": {"train": len(rows[0]), "test": len(rows[1])},
        "groups": len(train),
        "accuracy": float(((scores > threshold) == data.y[test]).mean()),
        "auc": float(roc_auc_score(data.y[test], scores)),
    }
