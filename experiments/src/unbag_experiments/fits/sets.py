"""The tables on which fits are compared, and which of them thresholds of the library are chosen by."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unbag_experiments import datasets
from unbag_experiments.datasets.folder import data_folder


@dataclass(frozen=True)
class Declared:
    """A table: its number of rows, and whether thresholds are chosen by it."""

    rows: int
    development: bool


SETS = {
    "vehicle": Declared(846, development=True),
    "pendigits": Declared(10_992, development=True),
    "usps": Declared(9_298, development=True),
    "breast_cancer": Declared(569, development=True),
    "digits": Declared(1_797, development=True),
    "credit_g": Declared(1_000, development=True),
    "soybean": Declared(683, development=True),
    "two_classes": Declared(8_000, development=True),
    "letters": Declared(8_000, development=True),
    "rare_5": Declared(8_000, development=True),
    "msplice": Declared(3_175, development=False),
    "optdigits": Declared(5_620, development=False),
    "wine": Declared(178, development=False),
    "mammography": Declared(11_183, development=False),
    "phoneme": Declared(5_404, development=False),
    "hypothyroid": Declared(3_772, development=False),
    "five_classes": Declared(8_000, development=False),
    "blobs": Declared(8_000, development=False),
    "shells": Declared(8_000, development=False),
    "rare_1": Declared(10_000, development=False),
}


_MIXED: dict[str, Any] = {"n_features": 20, "n_informative": 8, "n_redundant": 4, "n_clusters_per_class": 2}
SIMULATED: dict[str, dict[str, Any]] = {
    "two_classes": {**_MIXED, "n_clusters_per_class": 4, "flip_y": 0.02},
    "five_classes": {**_MIXED, "n_classes": 5, "class_sep": 1.5, "flip_y": 0.02},
    "letters": {**_MIXED, "n_informative": 14, "n_classes": 26, "class_sep": 2.5, "flip_y": 0.02},
    "rare_5": {**_MIXED, "weights": [0.95], "class_sep": 1.5, "flip_y": 0},
    "rare_1": {**_MIXED, "weights": [0.99], "class_sep": 1.5, "flip_y": 0},
}
"""Parameters of ``sklearn.datasets.make_classification``."""


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of a table with a class each; NaN is a missing number."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return int(self.y.max()) + 1


def load(name: str) -> Data:
    """Load a table by its name.

    Examples
    --------
    >>> load("wine").X.shape
    (178, 13)
    """
    data = _load(name)
    if len(data.y) != SETS[name].rows:
        raise ValueError(f"{name} should have {SETS[name].rows} rows, but has {len(data.y)}")
    return data


def _load(name: str) -> Data:
    from sklearn import datasets as of_sklearn  # noqa: PLC0415 (takes a second, which --help does not need)

    parts: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
        "breast_cancer": of_sklearn.load_breast_cancer,
        "wine": of_sklearn.load_wine,
        "digits": of_sklearn.load_digits,
    }
    if name in SIMULATED:
        X, y = of_sklearn.make_classification(SETS[name].rows, random_state=0, **SIMULATED[name])
    elif name == "blobs":
        spread = {"centers": 26, "cluster_std": 4.5, "center_box": (-10, 10)}
        X, y = of_sklearn.make_blobs(SETS[name].rows, 12, random_state=0, **spread)
    elif name == "shells":
        shape = {"n_features": 6, "n_classes": 3}
        X, y = of_sklearn.make_gaussian_quantiles(n_samples=SETS[name].rows, random_state=0, **shape)
    elif name in parts:
        X, y = parts[name](return_X_y=True)
    elif name in ("mammography", "phoneme"):
        with np.load(data_folder() / f"{name}.npz") as file:
            X, y = file["X"], file["y"]
    elif name in ("credit_g", "hypothyroid", "soybean"):
        X, y = _read_words(name)
    else:
        dataset = datasets.load(name)
        X, y = dataset.X, dataset.y
    return Data(X.astype(np.float32), y.astype(np.int64))


def _read_words(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read a CSV file with the label in the last column; a word becomes indicators, an empty number NaN."""
    with open(data_folder() / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = np.array(list(csv.reader(file))[1:], dtype=object)
    columns = []
    for values in rows[:, :-1].T:
        try:
            numbers = np.array([float(value) if value else np.nan for value in values])
            columns += [numbers[:, None]] if np.isfinite(numbers).any() else []
        except ValueError:
            levels, level = np.unique(values.astype(str), return_inverse=True)
            columns.append(np.eye(len(levels))[level])
    return np.hstack(columns), np.unique(rows[:, -1].astype(str), return_inverse=True)[1]
