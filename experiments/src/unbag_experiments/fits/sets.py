"""The tables and bags that default fits are judged on, and which of them were looked at while the default was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unbag_experiments import datasets, ordered

IMAGES = 8_000
"""So many images of a set, drawn by a fixed seed, are the rows of a table."""
SIDE = 2
"""Pixels are means over squares of so many each way, 14 by 14 of 28 by 28."""


@dataclass(frozen=True)
class Declared:
    """A set, and whether defaults are developed on it; the others are looked at once, at the end.

    Parameters
    ----------
    rows
        How many rows there are, or bags.
    development
        Whether it may be looked at before the end.
    """

    rows: int
    development: bool


TABLES = {
    "vehicle": Declared(846, development=True),
    "pendigits": Declared(10_992, development=True),
    "usps": Declared(9_298, development=True),
    "breast_cancer": Declared(569, development=True),
    "digits": Declared(1_797, development=True),
    "msplice": Declared(3_175, development=False),
    "optdigits": Declared(5_620, development=False),  # its official test rows are those of digits
    "wine": Declared(178, development=False),
    "diabetes": Declared(442, development=False),  # five ranges of a number that columns hardly predict
    "mnist": Declared(IMAGES, development=False),
    "fashion-mnist": Declared(IMAGES, development=False),
}
BAGS = {
    "musk1": Declared(92, development=True),
    "elephant": Declared(200, development=True),
    "musk2": Declared(102, development=False),
    "fox": Declared(200, development=False),
    "tiger": Declared(200, development=False),
}
SETS = {**TABLES, **BAGS}


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of a table with a class each, or rows in bags that have one."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,), or (bags,)
    bags: np.ndarray | None = None  # (n,), the bag of each row

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.y.max()) + 1


def load(name: str) -> Data:
    """Load a set by its name, with as many rows, or bags, as are declared.

    Examples
    --------
    >>> load("wine").X.shape
    (178, 13)
    """
    data = _load(name)
    if len(data.y) != SETS[name].rows:
        raise ValueError(f"{name} should have {SETS[name].rows} rows, or bags, and has {len(data.y)}")
    return data


def _load(name: str) -> Data:
    from sklearn.datasets import load_breast_cancer, load_wine  # noqa: PLC0415 (a second, which --help can do without)

    bundled: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
        "breast_cancer": load_breast_cancer,
        "wine": load_wine,
    }
    if name in bundled:
        X, y = bundled[name](return_X_y=True)
        return Data(X.astype(np.float32), y)
    if name in ordered.NAMES:
        table = ordered.load(name)
        return Data(table.X, table.labels(np.arange(len(table.X))))
    dataset = datasets.load(name)
    if dataset.X.ndim == 2:
        return Data(dataset.X, dataset.y, dataset.bags)
    which = np.sort(np.random.default_rng(0).permutation(len(dataset.y))[:IMAGES])
    images = dataset.X[which].astype(np.float32) / 255
    n, _, height, width = images.shape  # of one channel
    squares = images.reshape(n, height // SIDE, SIDE, width // SIDE, SIDE)
    return Data(squares.mean((2, 4)).reshape(n, -1), dataset.y[which])
