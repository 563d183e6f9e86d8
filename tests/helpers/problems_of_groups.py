"""Small problems that the tests of the estimator share."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np

import unbag

# Settings that learn blobs in a moment.
FAST = {"model": "mlp", "epochs": 30, "learning_rate": 0.01, "scaling": "standard", "random_state": 0}

# The same of the automatic model.
MIXED = {"model": "auto", "n_folds": 2, "epochs": 2, "learning_rate": 0.01, "random_state": 0}


def fit_all_candidates(X: Any, y: Any, groups: Any = None, **settings: Any) -> unbag.AggregateClassifier:
    """Return a mixture that has all candidates, whatever left-out groups say."""
    with patch("unbag.families.cross_fit.fit_mixture", side_effect=_mixed):
        return unbag.AggregateClassifier(**{**MIXED, **settings}).fit(X, y, groups)


def _mixed(_: Any, candidates: Any) -> list[float]:
    return [0.4, 0.3, 0.1, 0.2] if len(candidates) == 4 else [0.5, 0.3, 0.2]


def blobs(n: int = 200, k: int = 3, seed: int = 0, spread: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows around k corners, and which corner each belongs to."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, k, n)
    return random.normal(size=(n, k)) + spread * np.eye(k)[labels], labels


def count(labels: np.ndarray, ids: np.ndarray, k: int) -> np.ndarray:
    """Return how many of each class each group has, in the order of sorted ids."""
    return np.stack([np.bincount(labels[ids == one], minlength=k) for one in np.unique(ids)])


def tuples(n_rows: int, n: int, size: int, seed: int = 0) -> unbag.Groups:
    """Return groups of one size, drawn at random."""
    random = np.random.default_rng(seed)
    return unbag.Groups.from_tuples(np.stack([random.choice(n_rows, size, replace=False) for _ in range(n)]))
