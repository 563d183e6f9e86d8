"""The trials of an experiment: random splits, and groups drawn from the training side alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unbag import Groups
from unbag.aggregates import AGGREGATES, MultipleInstance
from unbag.training import Observations
from unbag_experiments.bags import prepare_bags, split_bags
from unbag_experiments.baselines.base import Judged, Task
from unbag_experiments.datasets import Dataset
from unbag_experiments.ordered import OrderedTable
from unbag_experiments.plan import Cell
from unbag_experiments.splits import split_official, split_whole


def symmetry(problem: str, n_classes: int) -> Literal["none", "reversal", "any"]:
    """Return which renamings of the classes a problem cannot tell apart, so that accuracy is that of the best one."""
    if problem in ("pairwise_similarity", "triplet_comparison"):
        return "any"
    if problem == "ordinal_triplet":
        return "any" if n_classes == 2 else "reversal"
    return "none"


def usual_n_groups(problem: str, n: int, size: int) -> int:
    """Return how many groups of a size are drawn from a table of so many rows in all.

    The paper says "of the training set", but the numbers in its table are those of the whole set. For proportions it
    has half as many groups of 6 as rows; groups of other sizes have as many members in all.

    Examples
    --------
    >>> usual_n_groups("pairwise_similarity", 3175, 2), usual_n_groups("label_proportions", 3175, 6)
    (6350, 1587)
    """
    return 3 * n // size if problem == "label_proportions" else 2 * n


def draw_groups(rows: np.ndarray, n_groups: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw groups of rows, (n_groups, size), every member by itself and with replacement.

    Examples
    --------
    >>> draw_groups(np.array([7, 8, 9]), 2, 3, np.random.default_rng(0))
    array([[9, 8, 8],
           [7, 7, 7]])
    """
    return rows[rng.integers(0, len(rows), (n_groups, size))]


def sort_groups(X: np.ndarray, rows: np.ndarray, n_groups: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Cut rows that are sorted, with noise, into groups, (n_groups, size), as often as it takes.

    Sorted by the column that varies most among them, or by the brightness of images; the noise is normal, with the
    deviation that the sorted values have. Those that are left over at the end of a pass are left out of it; fewer than
    a group needs are taken several times.
    """
    rows = np.tile(rows, -(-size // len(rows)))
    values = X[rows].reshape(len(rows), -1).astype(np.float64)
    value = values.mean(1) if X.ndim > 2 else values[:, values.var(0).argmax()]
    parts: list[np.ndarray] = []
    while len(parts) < n_groups:
        order = rows[np.argsort(value + rng.normal(0, value.std(), len(value)))]
        parts += np.split(order[: len(order) // size * size], len(order) // size)
    return np.stack(parts[:n_groups])


def tasks_of(cell: Cell, data: Dataset | OrderedTable, seeds: Sequence[int], device: torch.device) -> list[Task]:
    """Make the trials of a cell of the plan."""
    return make_tasks(
        data,
        cell.problem,
        cell.protocol,
        seeds=seeds,
        n_groups=cell.n_groups,
        group_size=cell.part.group_size,
        device=device,
    )


def make_tasks(
    data: Dataset | OrderedTable,
    problem: str,
    protocol: str,
    *,
    seeds: Sequence[int],
    n_groups: int | None = None,
    group_size: int | None = None,
    device: torch.device,
) -> list[Task]:
    """Make the trials of a cell, one for each seed; all share one table."""
    if not isinstance(data, OrderedTable) and data.bags is not None:
        return _bag_tasks(data, protocol, seeds, device)
    X = _tensor(data.X, device)
    size = AGGREGATES[problem]().size or group_size
    if size is None:
        raise ValueError(f"group_size must be given for {problem}, whose groups may be of any size")
    shape = (n_groups or usual_n_groups(problem, len(X), size), size)
    return [_row_task(data, X, (problem, protocol), seed, shape) for seed in seeds]


def _row_task(
    data: Dataset | OrderedTable, X: Tensor, kind: tuple[str, str], seed: int, shape: tuple[int, int]
) -> Task:
    problem, protocol = kind
    rng = np.random.default_rng(seed)
    n_groups, size = shape
    n = len(X)
    if not isinstance(data, OrderedTable) and data.n_train is not None and X.ndim > 2:
        split = split_official(n, data.n_train, rng)
    else:  # tables are pooled, as in the paper
        split = split_whole(n, rng)
    if isinstance(data, OrderedTable):
        y, k = data.labels(split.train), data.n_classes
    else:
        y, k = data.y, len(data.classes)
    if protocol == "one_class":
        y, k = (y == k - 1).astype(np.int64), 2
    labels = _tensor(y, X.device)
    aggregate = AGGREGATES[problem]()

    def observe(rows: np.ndarray, n_groups: int) -> Observations:
        if protocol == "sorted_groups":
            drawn = sort_groups(data.X, rows, n_groups, size, rng)
        else:
            drawn = draw_groups(rows, n_groups, size, rng)
        groups = Groups.from_tuples(_tensor(drawn, X.device), n_rows=n)
        return Observations(aggregate, groups, aggregate.observe(labels, groups, k), k)

    observations = observe(split.train, n_groups)
    held_out = observe(split.validation, max(1, round(n_groups * len(split.validation) / len(split.train))))
    train, validation, test = (_tensor(side, X.device) for side in split)
    return Task(
        X=X,
        observations=observations,
        train_rows=train,
        labels=labels,
        validation=Judged(validation, labels[validation]),
        test=Judged(test, labels[test]),
        n_classes=k,
        permuted=symmetry(problem, k) == "any",
        held_out=held_out,
    )


def _bag_tasks(data: Dataset, protocol: str, seeds: Sequence[int], device: torch.device) -> list[Task]:
    bags = prepare_bags(data, protocol)
    X = _tensor(bags.X, device)

    def judged(which: np.ndarray) -> Judged:
        sizes = Groups.from_sizes(_tensor(bags.sizes[which], device))
        return Judged(_tensor(bags.rows(which), device), _tensor(bags.y[which], device), sizes)

    def observed(judged: Judged) -> Observations:
        assert judged.bags is not None
        groups = Groups.from_offsets(judged.bags.offsets, judged.rows)
        return Observations(MultipleInstance(), groups, judged.truth, 2)

    tasks = []
    for seed in seeds:
        split = split_bags(bags, protocol, seed)
        train, validation = judged(split.train), judged(split.validation)
        tasks.append(
            Task(
                X=X,
                observations=observed(train),
                train_rows=train.rows,
                labels=None,
                validation=validation,
                test=judged(split.test),
                n_classes=2,
                permuted=False,
                held_out=observed(validation),
            )
        )
    return tasks


def _tensor(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values.copy()).to(device)  # torch takes no read-only arrays
