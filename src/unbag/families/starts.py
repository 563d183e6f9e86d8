"""First guesses of the classes of rows, for observations that do not tell classes apart where all rows look alike."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

# How sure a guess is: enough to leave the saddle point where all rows are alike, and little enough to be unlearned.
CERTAINTY = 0.8


def guess_classes(X: np.ndarray, n_classes: int, seed: int, n_random: int = 2) -> list[Tensor]:
    """Return several distributions over classes for each row: by k-means, and by random directions.

    Parameters
    ----------
    X
        Rows, ``(n, columns)``; NaN where a value is missing.
    n_classes
        How many classes there are.
    seed
        Of all random numbers.
    n_random
        How many guesses by random directions.

    Examples
    --------
    >>> guesses = guess_classes(np.array([[0.0], [0.1], [5.0]]), 2, seed=0)
    >>> len(guesses), guesses[0].shape
    (3, torch.Size([3, 2]))
    """
    rows = _standardised(X)
    random = np.random.default_rng(seed)
    n_clusters = min(n_classes, len(np.unique(rows, axis=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = [KMeans(n_clusters, n_init=3, random_state=seed % 2**32).fit(rows).labels_]
    directions = random.normal(size=(n_random, rows.shape[1], n_classes))
    labels = np.stack([*clusters, *(rows @ directions).argmax(-1)])
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), n_classes).double()
    return list(CERTAINTY * one_hot + (1 - CERTAINTY) / n_classes)


def _standardised(X: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and deviation 1, with 0 for what is missing."""
    missing = np.isnan(X)
    there = np.maximum((~missing).sum(0), 1)
    centred = np.where(missing, 0, X)
    centred = np.where(missing, 0, centred - centred.sum(0) / there)
    deviation = np.sqrt((centred**2).sum(0) / there)
    return centred / np.where(deviation > 0, deviation, 1)
