"""Smoke test of every cell: tiny made-up data in the shape of each data set, and next to no training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unbag_experiments import ordered
from unbag_experiments.datasets import Dataset
from unbag_experiments.ordered import OrderedTable
from unbag_experiments.plan import PARTS, Cell

EPOCHS = 2
ROWS = 60
N_BAGS = 20

SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    **dict.fromkeys(("mnist", "kuzushiji-mnist", "fashion-mnist"), ((1, 28, 28), 10)),
    # Of a quarter of the size, for the sake of a DenseNet on a processor.
    **dict.fromkeys(("cifar10", "svhn"), ((3, 8, 8), 10)),
    **dict.fromkeys(("elephant", "fox", "tiger"), ((230,), 2)),
    **dict.fromkeys(("musk1", "musk2"), ((166,), 2)),
    "msplice": ((240,), 3),
    "optdigits": ((62,), 10),
    "pendigits": ((16,), 10),
    "usps": ((256,), 10),
    "vehicle": ((18,), 4),
}
"""Of one row, and the number of classes."""


def tiny(cell: Cell) -> Cell:
    """Return a cell with next to no epochs and groups; those of a table of sizes stay different."""
    return replace(cell, epochs=EPOCHS, n_groups=cell.n_groups and 4 + cell.n_groups // 10_000)


def load(name: str) -> Dataset | OrderedTable:
    """Return random data in the shape of a data set; those that come with scikit-learn are small enough as they are.

    Examples
    --------
    >>> load("cifar10").X.shape, load("musk1").X.shape[1]
    ((60, 3, 8, 8), 166)
    """
    if name in ordered.NAMES:
        whole = ordered.load(name)
        return replace(whole, X=whole.X[:ROWS], values=whole.values[:ROWS])
    # A data set that is new to a table looks like the first one there.
    part = next(part for part in PARTS if name in part.datasets)
    shape, n_classes = SHAPES.get(name, SHAPES[part.datasets[0]])
    rng = np.random.default_rng(0)
    images = len(shape) == 3
    X = rng.integers(0, 256, (ROWS, *shape), dtype=np.uint8) if images else rng.random((ROWS, *shape), np.float32)
    bags = np.repeat(np.arange(N_BAGS), ROWS // N_BAGS) if part.data == "bags" else None
    return Dataset(
        name=name,
        X=X,
        y=np.arange(ROWS if bags is None else N_BAGS) % n_classes,
        classes=tuple(str(label) for label in range(n_classes)),
        bags=bags,
        n_train=ROWS * 2 // 3 if images else None,
        source="made up",
        licence="none",
    )
