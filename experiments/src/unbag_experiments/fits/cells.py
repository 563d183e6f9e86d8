"""One fit of the comparison, and what is measured of it."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from unbag_experiments.fits.grouping import count, group, n_training_rows, split
from unbag_experiments.fits.methods import learn
from unbag_experiments.fits.plan import Cell
from unbag_experiments.fits.sets import Data


def run(cell: Cell, data: Data) -> dict[str, Any]:
    """Run a cell, and return what was measured."""
    train, test = split(data.y, cell.seed, n_training_rows(len(data.y)))
    ids = group(data.X[train], cell.size, cell.grouping, cell.seed)
    counts = count(ids, data.y[train], data.n_classes)
    start, cpu = time.monotonic(), _cpu_seconds()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learned = learn(cell.method, data.X[train], ids, counts, data.X[test], seed=cell.seed)
    return {
        "rows": {"train": len(train), "test": len(test)},
        "groups": len(counts),
        **measure(learned.probs, data.y[test]),
        **learned.report,
        "warnings": sorted({str(warning.message)[:80] for warning in caught}),
        "cpu_seconds": round(_cpu_seconds() - cpu, 2),
        "seconds": round(time.monotonic() - start, 2),
    }


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its finished children."""
    return sum(os.times()[:4])


def measure(probs: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """Return accuracy, mean confidence, log loss, and the area under the ROC curve.

    With more than two classes the area is the mean over classes, each against the rest; None where one does not occur.

    Examples
    --------
    >>> measure(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1]))["accuracy"]
    0.6666666666666666
    """
    clipped = probs.clip(1e-12, None)
    clipped /= clipped.sum(1, keepdims=True)
    scores = probs[:, 1] if probs.shape[1] == 2 else clipped
    occur = len(np.unique(labels)) == probs.shape[1]
    return {
        "accuracy": float((probs.argmax(1) == labels).mean()),
        "confidence": float(probs.max(1).mean()),
        "log_loss": float(log_loss(labels, clipped, labels=np.arange(probs.shape[1]))),
        "auc": float(roc_auc_score(labels, scores, multi_class="ovr")) if occur else None,
    }
