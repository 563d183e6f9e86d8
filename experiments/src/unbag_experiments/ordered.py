"""Ordered classes, of data that come with scikit-learn: the paper derives ordinal observations but never tests them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAMES = ("diabetes", "digits")


@dataclass(frozen=True, eq=False)
class OrderedTable:
    """Rows with a value each; classes are the values themselves, or ranges of them.

    Parameters
    ----------
    X
        Rows, (n, d).
    values
        One for each row.
    cut_into
        How many ranges to cut the values into; None where the values are the classes, 0, 1, 2, ...
    """

    X: np.ndarray
    values: np.ndarray
    cut_into: int | None = None

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return self.cut_into or int(self.values.max()) + 1

    def labels(self, train: np.ndarray) -> np.ndarray:
        """Return the class of every row; ranges hold equally many of the training rows, and look at no others.

        Examples
        --------
        >>> OrderedTable(np.zeros((4, 1)), np.array([1.0, 2.0, 3.0, 9.0]), cut_into=2).labels(np.array([0, 1, 2]))
        array([0, 1, 1, 1])
        """
        if self.cut_into is None:
            return self.values.astype(np.int64)
        inner = np.linspace(0, 1, self.cut_into + 1)[1:-1]
        return np.searchsorted(np.quantile(self.values[train], inner), self.values, side="right")


def load(name: str) -> OrderedTable:
    """Load an ordered data set by its name.

    ``"diabetes"``: how far the disease has progressed after a year, in five ranges, from ten measurements of 442
    patients. A doctor who cannot put a number on it can still say which of two patients is worse off. ``"digits"``: the
    number that a handwritten digit shows, from 8 x 8 pixels, 1,797 of them; larger or smaller is a matter of fact.

    Examples
    --------
    >>> load("diabetes").n_classes, load("digits").n_classes
    (5, 10)
    """
    from sklearn.datasets import load_diabetes, load_digits  # noqa: PLC0415 (a second, which a list can do without)

    if name == "diabetes":
        X, values = load_diabetes(return_X_y=True)
        return OrderedTable(X.astype(np.float32), values, cut_into=5)
    if name == "digits":
        X, values = load_digits(return_X_y=True)
        return OrderedTable(X.astype(np.float32), values)
    raise ValueError(f"there is no ordered data set {name!r}; there are {', '.join(NAMES)}")
