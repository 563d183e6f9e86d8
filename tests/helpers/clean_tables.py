"""Random tables without duplicates, leaks or interchangeable classes: no check may report any.

``python tests/helpers/clean_tables.py --tables 1500 --jobs 16`` counts the false alarms.
"""

import argparse
from collections import Counter
from typing import NamedTuple

import joblib
import numpy as np
import torch

from unbag import Groups, LabelProportions, diagnose

CAREFUL = (
    *("copies", "near_duplicates", "share_column", "group_column", "answer_column"),
    *("interchangeable_classes", "size_dependent_shares"),
)
"""Findings that must not be reported by mistake."""

SHAPES = {
    "normal": lambda r, X: X,
    "skewed": lambda r, X: np.exp(X),
    "heavy tails": lambda r, X: r.standard_t(2, X.shape) + X,
    "rounded": lambda r, X: X.round(1),
    "whole numbers": lambda r, X: X.round(),
    "counts": lambda r, X: r.poisson(np.exp(X.clip(-3, 4))).astype(float),
    "percentages": lambda r, X: r.integers(0, 101, X.shape).astype(float),
    "categories": lambda r, X: np.digitize(X, [-1, 0, 1]).astype(float),
    "yes or no": lambda r, X: (X > 0).astype(float),
    "answers": lambda r, X: np.clip(np.round(3 + X + r.normal(size=(len(X), 1))), 1, 5),
    "half categories": lambda r, X: np.where(np.arange(X.shape[1]) % 2, X > 0, X).astype(float),
    "many zeros": lambda r, X: np.where(r.random(X.shape) < 0.6, 0, np.abs(X)),
    "correlated": lambda r, X: X @ r.normal(size=(X.shape[1],) * 2),
    "a curve": lambda r, X: np.sin(X[:, :1] * np.arange(1, X.shape[1] + 1)) + 0.05 * r.normal(size=X.shape),
    "missing": lambda r, X: np.where(r.random(X.shape) < 0.1, np.nan, X),
}


class CleanTable(NamedTuple):
    """Rows, labels and groups."""

    shape: str
    X: np.ndarray
    y: np.ndarray
    groups: Groups
    n_classes: int


def make_table(seed: int) -> CleanTable:
    """Draw a table of 20 to 2,000 rows in groups whose shares of the classes and means of the columns differ."""
    r = np.random.default_rng(seed)
    n, d, k = int(np.exp(r.uniform(*np.log([20, 2000])))), int(np.exp(r.uniform(0, np.log(40)))), int(r.integers(2, 6))
    n_groups = max(3, int(n / np.exp(r.uniform(*np.log([2, 60])))))
    sizes = np.bincount(r.integers(0, n_groups, n) if r.random() < 0.5 else np.arange(n) % n_groups)
    group = np.repeat(np.arange(len(sizes)), sizes)
    shares = r.dirichlet(np.full(k, r.choice([0.7, 2, 20])), len(sizes))
    y = np.array([r.choice(k, p=shares[g]) for g in group])
    centres = r.choice([0, 0.3, 1]) * r.normal(size=(k, d))
    X = centres[y] + r.normal(size=(n, d)) + r.choice([0, 0, 0.5, 2]) * r.normal(size=(len(sizes), d))[group]
    shape = list(SHAPES)[seed % len(SHAPES)]
    return CleanTable(shape, SHAPES[shape](r, X), y, Groups.from_ids(group), k)


def find_false_alarms(table: CleanTable) -> list[str]:
    """Return the kinds of findings that are false alarms; classes with equal counts by accident are not."""
    z = LabelProportions().observe(table.y, table.groups, table.n_classes)
    found = [f for f in diagnose(LabelProportions(), table.groups, z, table.n_classes, table.X) if f.kind in CAREFUL]
    return [f.kind for f in found if "have equal counts in every group" not in f.message]


def examine(seed: int) -> tuple[int, CleanTable, list[str]]:
    """Return a table and its false alarms."""
    torch.set_num_threads(1)
    table = make_table(seed)
    return seed, table, find_false_alarms(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count the false alarms in clean tables.")
    parser.add_argument("--tables", type=int, default=1500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first table")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.tables)
    results = joblib.Parallel(n_jobs=arguments.jobs)(joblib.delayed(examine)(seed) for seed in seeds)
    for seed, table, kinds in results:
        if kinds:
            print(seed, table.shape, table.X.shape, len(table.groups), table.n_classes, kinds)
    alarms = Counter(kind for *_, kinds in results for kind in kinds)
    n_tables = sum(bool(kinds) for *_, kinds in results)
    print(f"{n_tables} of {len(results)} tables raise a false alarm ({n_tables / len(results):.2%}): {dict(alarms)}")
