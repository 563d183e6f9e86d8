"""Small problems that the tests of the estimator share."""

from typing import Any

import numpy as np

import unbag


def fast(*, epochs: int = 30, learning_rate: float = 0.01, **settings: Any) -> dict[str, Any]:
    """Return parameters of a classifier that learns blobs in a moment; settings of training may follow."""
    training = unbag.NetworkTraining(epochs, learning_rate=learning_rate, **settings)
    return {"model": "mlp", "training": training, "random_state": 0}


FAST = fast()


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
