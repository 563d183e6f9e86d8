"""Rows for training and for the test, and groups of rows: at random, by columns, by clusters, or by similarity."""

from __future__ import annotations

import math
import warnings

import numpy as np

from unbag_experiments.fits.sets import SETS

MAX_TRAINING_ROWS = 6_144
"""Six groups of the largest size."""
MIN_TEST_ROWS = 2_000
"""A third of the rows where there are fewer than 6,000."""
SIZES = (4, 16, 64, 256, 1024)
MIN_GROUPS = 5
NOISE = 0.5
"""Added to the column or projection by which rows are sorted, in units of its standard deviation."""

GROUPINGS = ("random", "column", "two columns", "clusters")


def n_training_rows(n: int) -> int:
    """Return the number of rows of a table that are used for training.

    Examples
    --------
    >>> n_training_rows(846), n_training_rows(10_992)
    (564, 6144)
    """
    return min(n - min(n // 3, MIN_TEST_ROWS), MAX_TRAINING_ROWS)


def sizes_of(name: str) -> tuple[int, ...]:
    """Return the sizes of groups of which a table has enough.

    Examples
    --------
    >>> sizes_of("vehicle")
    (4, 16, 64)
    """
    return tuple(size for size in SIZES if n_training_rows(SETS[name].rows) // size >= MIN_GROUPS)


def split(labels: np.ndarray, seed: int, n_training: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of training and of test rows; classes have equal shares in both."""
    from sklearn.model_selection import train_test_split  # noqa: PLC0415 (takes a second, which --help does not need)

    train, test = train_test_split(np.arange(len(labels)), train_size=n_training, stratify=labels, random_state=seed)
    return train, test


def group(X: np.ndarray, size: int, grouping: str, seed: int) -> np.ndarray:
    """Return the group of each row.

    Groups have ``size`` rows, the last may have fewer; those of ``"clusters"`` have uneven sizes of this mean.

    Examples
    --------
    >>> group(np.zeros((5, 1)), 2, "random", seed=0)
    array([1, 2, 0, 1, 0])
    """
    rng = np.random.default_rng(seed)
    if grouping == "clusters":
        return _cluster(X, size, seed)
    if grouping == "random":
        order = rng.permutation(len(X))
    elif grouping == "similar":
        order = _blur(_standardise(X) @ rng.standard_normal(X.shape[1]), rng).argsort(kind="stable")
    else:
        rows = _standardise(X)
        columns = rng.permutation(np.flatnonzero(rows.std(0) > 0))[:2]
        first, second = (_blur(rows[:, column], rng) for column in (columns[0], columns[-1]))
        n_strips = 1 if grouping == "column" else round(math.sqrt(len(X) / size))
        strip = first.argsort().argsort() * n_strips // len(X)
        order = np.lexsort((first if grouping == "column" else second, strip))
    ids = np.empty(len(X), np.int64)
    ids[order] = np.arange(len(X)) // size
    return ids


def _standardise(X: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and deviation 1; missing and constant values are 0."""
    centred = np.nan_to_num(X - np.nanmean(X, 0, dtype=np.float64))
    deviations = centred.std(0)
    return centred / np.where(deviations > 0, deviations, 1)


def _blur(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return values + NOISE * values.std() * rng.standard_normal(len(values))


def _cluster(X: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the cluster of each row by a few steps of k-means."""
    from sklearn.cluster import KMeans  # noqa: PLC0415 (takes a second, which --help does not need)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means warns where it has not converged, or rows are equal
        model = KMeans(max(len(X) // size, 2), init="random", n_init=1, max_iter=5, random_state=seed)
        labels = model.fit(_standardise(X)).labels_
    return np.unique(labels, return_inverse=True)[1]


def count(ids: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the number of rows of each class in each group, shape ``(groups, classes)``.

    Examples
    --------
    >>> count(np.array([0, 0, 1]), np.array([1, 1, 0]), 2)
    array([[0, 2],
           [1, 0]])
    """
    counts = np.zeros((int(ids.max()) + 1, n_classes), np.int64)
    np.add.at(counts, (ids, labels), 1)
    return counts
