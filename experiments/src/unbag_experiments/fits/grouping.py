"""Rows to learn from and rows to be judged on, and groups of them: at random, or of similar rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unbag_experiments.fits.sets import SETS

TEST_SHARE = 0.25
MOST_TRAINING_ROWS = 5_120
"""Five groups of the largest size: all cells together take hours on one core, and what is left is tested on."""
SIZES = (4, 16, 64, 256, 1024)
FEWEST = 5
"""A size of which fewer whole groups come out is skipped."""
NOISE = 0.5
"""Of the projection by which similar rows are found, in units of its own standard deviation."""

GROUPINGS = ("random", "similar")


def n_training_rows(n: int) -> int:
    """Return how many rows of a table are trained on.

    Examples
    --------
    >>> n_training_rows(846), n_training_rows(10_992)
    (634, 5120)
    """
    return min(n - round(TEST_SHARE * n), MOST_TRAINING_ROWS)


def sizes_of(name: str) -> tuple[int, ...]:
    """Return the sizes of groups of which enough come out of a set.

    Examples
    --------
    >>> sizes_of("vehicle")
    (4, 16, 64)
    """
    return tuple(size for size in SIZES if n_training_rows(SETS[name].rows) // size >= FEWEST)


def split(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of training and of test rows; classes have their shares in both."""
    from sklearn.model_selection import train_test_split  # noqa: PLC0415 (a second, which --help can do without)

    n = len(labels)
    train, test = train_test_split(np.arange(n), train_size=n_training_rows(n), stratify=labels, random_state=seed)
    return train, test


def group(X: np.ndarray, size: int, grouping: str, seed: int) -> np.ndarray:
    """Return the group of each row; what is left over is one smaller group.

    Examples
    --------
    >>> group(np.zeros((5, 1)), 2, "random", seed=0)
    array([1, 2, 0, 1, 0])
    """
    rng = np.random.default_rng(seed)
    orders: dict[str, Callable[[], np.ndarray]] = {
        "random": lambda: rng.permutation(len(X)),
        "similar": lambda: _project(X, rng).argsort(kind="stable"),
    }
    ids = np.empty(len(X), np.int64)
    ids[orders[grouping]()] = np.arange(len(X)) // size
    return ids


def _project(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    centred = X - X.mean(0, dtype=np.float64)
    deviations = centred.std(0)
    projected = centred / np.where(deviations > 0, deviations, 1) @ rng.standard_normal(X.shape[1])
    return projected + NOISE * projected.std() * rng.standard_normal(len(X))


def count(ids: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Return how many rows of each class are in each group, (groups, classes).

    Examples
    --------
    >>> count(np.array([0, 0, 1]), np.array([1, 1, 0]), 2)
    array([[0, 2],
           [1, 0]])
    """
    counts = np.zeros((int(ids.max()) + 1, n_classes), np.int64)
    np.add.at(counts, (ids, labels), 1)
    return counts
