"""Twelve small data sets on which the accuracy of the default fit is recorded.

Record the accuracy of the installed version: ``python tests/helpers/accuracy_cells.py KEY [CELL ...]``, where KEY is
the entry of ``tests/golden/accuracy.json`` that is written.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification

import unbag
from unbag.aggregates.registry import find_aggregate

RECORD = Path(__file__).parents[1] / "golden" / "accuracy.json"
SEEDS = (0, 1, 2)


class Cell(NamedTuple):
    """Rows and labels, observed groups of the first rows, and rows for the test."""

    X: np.ndarray
    y: np.ndarray
    groups: unbag.Groups
    aggregate: str
    n_classes: int
    X_test: np.ndarray
    y_test: np.ndarray


def simulate(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes of two clusters each."""
    return make_classification(
        n, 8, n_informative=5, n_redundant=1, n_classes=k, n_clusters_per_class=2, class_sep=1.6, random_state=seed
    )


def simulate_ordered(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw ordered classes along an arc."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    angle = np.pi * (y + rng.normal(0, 0.35, n)) / k
    X = np.stack([np.cos(angle), np.sin(angle)], 1) * rng.normal(3, 0.3, n)[:, None]
    return np.hstack([X, rng.normal(size=(n, 3))]), y


def of_digits(n_classes: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of the first digits."""
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(y < n_classes))[:n]
    return X[chosen], y[chosen]


def shuffled(loader: Callable, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of a data set of scikit-learn."""
    X, y = loader(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    return X[chosen], y[chosen]


def rare_positives(n: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two classes, of which the second is rare."""
    return make_classification(
        n, 8, n_informative=5, n_clusters_per_class=2, weights=[1 - share], class_sep=1.6, flip_y=0, random_state=seed
    )


def consecutive(size: int) -> Callable:
    """Group consecutive rows, which are in random order."""
    return lambda y, _: unbag.Groups.from_sizes([size] * (len(y) // size))


def mixed(size: int) -> Callable:
    """Group rows such that the shares of the classes differ between groups."""

    def make(y: np.ndarray, seed: int) -> unbag.Groups:
        rng = np.random.default_rng(seed)
        order = np.argsort(rng.permutation(y.max() + 1)[y] + rng.normal(0, 1.2, len(y)))
        return unbag.Groups.from_tuples(order[: len(y) // size * size].reshape(-1, size))

    return make


def tuples(size: int, n: int) -> Callable:
    """Draw tuples of different rows; a row is in several of them."""

    def make(y: np.ndarray, seed: int) -> unbag.Groups:
        rng = np.random.default_rng(seed)
        return unbag.Groups.from_tuples([rng.choice(len(y), size, replace=False) for _ in range(n)])

    return make


COUNTS, BAGS = "label_proportions", "multiple_instance"
CELLS: dict[str, tuple[Callable, Callable, str, int, int]] = {
    # name: data by seed, groups, kind of observation, classes, rows to learn from
    "counts of 3, 300 groups": (lambda s: simulate(3, 1400, s), consecutive(3), COUNTS, 3, 900),
    "counts of 4, 100 groups": (lambda s: shuffled(load_breast_cancer, 569, s), consecutive(4), COUNTS, 2, 400),
    "counts of 16, 50 groups": (lambda s: of_digits(10, 1300, s), consecutive(16), COUNTS, 10, 800),
    "counts of 15, 8 groups": (lambda s: shuffled(load_wine, 178, s), consecutive(15), COUNTS, 3, 120),
    "counts of 64, 24 groups": (lambda s: simulate(3, 1800, s), mixed(64), COUNTS, 3, 1536),
    "counts of 256, 6 groups": (lambda s: simulate(4, 1800, s), mixed(256), COUNTS, 4, 1536),
    "bags of 8, 100 groups": (lambda s: rare_positives(1400, 0.1, s), consecutive(8), BAGS, 2, 800),
    "bags of 3, 130 groups": (lambda s: shuffled(load_breast_cancer, 569, s), consecutive(3), BAGS, 2, 390),
    "pairs, 500": (lambda s: of_digits(5, 800, s), tuples(2, 500), "pairwise_similarity", 5, 500),
    "triplets, 300": (lambda s: shuffled(load_wine, 178, s), tuples(3, 300), "triplet_comparison", 3, 120),
    "ranks, 400": (lambda s: of_digits(4, 700, s), tuples(2, 400), "ordinal_rank", 4, 400),
    "ordinal triplets, 500": (lambda s: simulate_ordered(4, 1200, s), tuples(3, 500), "ordinal_triplet", 4, 800),
}


def make_cell(name: str, seed: int) -> Cell:
    """Draw a cell by its name."""
    draw, group, aggregate, k, n = CELLS[name]
    X, y = draw(seed)
    return Cell(X[:n], y[:n], group(y[:n], seed), aggregate, k, X[n:], y[n:])


def accuracy(cell: Cell, predicted: np.ndarray) -> float:
    """Compute the accuracy on the test rows in percent, with the best names of classes that have none."""
    joint = np.zeros((cell.n_classes, cell.n_classes))
    np.add.at(joint, (cell.y_test, predicted), 1)
    hits = [np.trace(joint)]
    if cell.aggregate in ("pairwise_similarity", "triplet_comparison"):
        hits.append(joint[linear_sum_assignment(-joint)].sum())
    elif cell.aggregate == "ordinal_triplet":
        hits.append(np.trace(joint[::-1]))
    return 100 * max(hits) / len(cell.y_test)


def fit_cell(name: str, seed: int) -> tuple[float, unbag.AggregateClassifier]:
    """Fit the default to a cell, and compute its accuracy."""
    cell = make_cell(name, seed)
    z = find_aggregate(cell.aggregate).observe(cell.y, cell.groups, cell.n_classes)
    clf = unbag.AggregateClassifier(cell.aggregate, n_classes=cell.n_classes, random_state=seed)
    clf.set_params(**({"n_jobs": 1} if "n_jobs" in clf.get_params() else {}))
    clf.fit(cell.X, z, groups=cell.groups)
    return accuracy(cell, np.asarray(clf.predict(cell.X_test))), clf


def main(key: str, names: list[str]) -> None:
    """Record the accuracy of all seeds of some cells under a key."""
    warnings.simplefilter("ignore")
    for seed in SEEDS:
        for name in names or CELLS:
            begun = time.perf_counter()
            value, clf = fit_cell(name, seed)
            estimate = getattr(clf, "estimated_accuracy_", None)
            seconds = time.perf_counter() - begun
            print(f"{name:26s} {seed} {value:6.1f} % {seconds:6.1f} s  estimate {estimate}", flush=True)
            record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
            values = record.setdefault(key, {}).setdefault(name, [None] * len(SEEDS))
            values[seed] = round(value, 2)
            RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
