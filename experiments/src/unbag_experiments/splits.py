"""Training, validation and test splits of rows, or of bags."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FOLDS = 10


class Split(NamedTuple):
    """Numbers of rows, or of bags, each on one side only."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_whole(n: int, rng: np.random.Generator) -> Split:
    """Split at random, 60 to 20 to 20, rounded as the paper's table of data sets has it.

    Examples
    --------
    >>> [len(side) for side in split_whole(846, np.random.default_rng(0))]
    [507, 169, 170]
    """
    order = rng.permutation(n)
    test = -(-n // 5)
    validation = -(-(n - test) // 4)
    return Split(order[test + validation :], order[test : test + validation], order[:test])


def split_official(n: int, n_train: int, rng: np.random.Generator) -> Split:
    """Split the official training part at random, 75 to 25; the official test part stays what it is.

    Examples
    --------
    >>> [len(side) for side in split_official(99_289, 73_257, np.random.default_rng(0))]
    [54942, 18315, 26032]
    """
    order = rng.permutation(n_train)
    validation = -(-n_train // 4)
    return Split(order[validation:], order[:validation], np.arange(n_train, n))


def split_together(origins: np.ndarray, rng: np.random.Generator) -> Split:
    """Split originals 60 to 20 to 20; every copy goes where its original goes.

    Examples
    --------
    >>> split_together(np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4]), np.random.default_rng(0)).test
    array([2, 7])
    """
    sides = split_whole(int(origins.max()) + 1, rng)
    return Split(*(np.flatnonzero(np.isin(origins, side)) for side in sides))


def split_fold(labels: np.ndarray, seed: int) -> Split:
    """Take one fold of a stratified ten-fold cross-validation for testing, and about as many others for validation.

    Ten seeds from a multiple of ten on are the folds of one cross-validation, and the next ten those of another. All
    folds have equally many training bags: those that are left over validate.

    Examples
    --------
    >>> labels = np.array([0, 1] * 46)
    >>> [len(side) for side in split_fold(labels, 0)], [len(side) for side in split_fold(labels, 9)]
    ([73, 9, 10], [73, 10, 9])
    """
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415 (a second, which a list can do without)

    shuffle, fold = divmod(seed, FOLDS)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=shuffle).split(labels, labels)
    rest, test = list(folds)[fold]
    n, largest = len(labels), -(-len(labels) // FOLDS)
    n_train = n - largest - round(n / FOLDS)
    order = np.random.default_rng(seed).permutation(rest)
    return Split(order[:n_train], order[n_train:], test)
