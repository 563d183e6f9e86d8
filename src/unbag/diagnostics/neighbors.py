"""Near-duplicate rows across groups, found by the distances to the nearest rows of other groups."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import NamedTuple

import numpy as np
import torch

from unbag._utils.findings import Finding
from unbag.diagnostics.registry import Context

MAX_ROWS = 200_000
N_QUERIES = 500
MAX_DISTANCES = 25_000_000
MAX_COLUMNS = 50
"""Bounds of the search, which takes at most a few seconds."""
MAX_COPIES = 32
"""Near-duplicates of a row are among so many nearest rows; as many further ones show what distances are usual."""
PARTS = (1, 4, 16)
"""Rows are thinned out by these factors, one after the other, until near-duplicates are few enough to be found."""
MIN_ROWS = 3 * MAX_COPIES
MIN_OBJECTS = 20
"""Rows with near-duplicates must be so many different ones, or four for each class: classes are no duplicates."""
MIN_VALUES = 20
"""Columns with fewer values have no scale: rows agree in them by chance."""
MIN_MEAN_EXPONENT, MIN_RELATIVE_EXPONENT = 2.0, 1.5
"""Of all rows; 1 is expected, and it is the same for any number of neighbours."""
MIN_GAP = 1.3
"""Distance to the next row less that to the last of j near-duplicates, in parts of the j-th of the latter; on a curved
surface distances grow faster, but without a gap."""
MIN_EXPONENT = 12.0
MIN_SHARE = 0.05
"""A share of the rows with this exponent is enough: chance makes e^-12 of them so."""


class NearDuplicates(NamedTuple):
    """Rows whose nearest neighbours are much closer than the next ones."""

    n_copies: int
    """Near-duplicates of such a row."""
    share: float
    """Of the rows that were looked at."""
    ratio: float
    """Median of the distance to the next row over the distance to the last near-duplicate."""


def find_near_duplicates(X: np.ndarray, unit: np.ndarray, n_classes: int = 2) -> NearDuplicates | None:
    """Compare the distances from rows to their nearest neighbours in other units.

    In d dimensions the ratio of the distances to the j-th and the next neighbour exceeds r with probability r^(-j d),
    whatever the density; the exponent j d log r is 1 on average. Rows with j near-duplicates have a larger one there. d
    is estimated from neighbours further away. Columns are replaced by ranks, ties in random order, so that neither
    outliers nor rounding matter.

    Parameters
    ----------
    X
        Rows; NaN where a value is missing.
    unit
        Number of the group, or subject, of each row; neighbours in the same one are ignored.
    n_classes
        Number of classes, each of which may be a narrow cluster.
    """
    random = np.random.default_rng(0)
    for part in PARTS:
        n = min(len(X) // part, MAX_ROWS)
        if n < MIN_ROWS:
            break
        rows = np.arange(n) if n == len(X) else random.choice(len(X), n, replace=False)
        if (found := _compare_neighbors(X[rows], unit[rows], n_classes, random)) is not None:
            return found._replace(n_copies=found.n_copies * len(X) // n)
    return None


def _compare_neighbors(
    X: np.ndarray, unit: np.ndarray, n_classes: int, random: np.random.Generator
) -> NearDuplicates | None:
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 (slow to import)

    n = len(X)
    several = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) >= MIN_VALUES]
    if len(several) < 2:
        return None
    if len(several) > MAX_COLUMNS:
        several = random.choice(several, MAX_COLUMNS, replace=False).tolist()
    ranks = np.empty((n, len(several)), dtype=np.float32)
    for place, j in enumerate(several):
        ranks[np.lexsort((random.permutation(n), X[:, j])), place] = np.arange(n) / n
    queries = random.choice(n, min(N_QUERIES, MAX_DISTANCES // n, n), replace=False)
    largest = int(np.unique(unit, return_counts=True)[1].max())
    n_neighbors = min(2 * MAX_COPIES + min(largest, 2 * MAX_COPIES), n)
    distance, place = NearestNeighbors(n_neighbors=n_neighbors).fit(ranks).kneighbors(ranks[queries])
    outside = unit[place] != unit[queries][:, None]
    order = np.argsort(~outside, axis=1, kind="stable")[:, : 2 * MAX_COPIES]
    complete = np.take_along_axis(outside, order, 1).all(1) & (order.shape[1] == 2 * MAX_COPIES)
    if complete.sum() < MIN_ROWS / 2:
        return None
    log_distance = np.log(np.maximum(np.take_along_axis(distance, order, 1)[complete], 1e-9))
    growth = float(np.median(log_distance[:, -1] - log_distance[:, MAX_COPIES]))
    dimension = log(2 * MAX_COPIES / (MAX_COPIES + 1)) / max(growth, 1e-9)
    most = max(1, min(MAX_COPIES, n // max(MIN_OBJECTS, 4 * n_classes)))
    steps = np.diff(log_distance[:, : MAX_COPIES + 1], axis=1)  # (queries, neighbours)
    exponent = steps * dimension * np.arange(1, MAX_COPIES + 1)
    mean, usual = exponent.mean(0)[:most], np.median(exponent.mean(0))
    last = int(mean.argmax())
    many = (exponent[:, :most].max(1) > MIN_EXPONENT * max(usual, 1)).mean() >= MIN_SHARE
    if mean[last] < max(MIN_MEAN_EXPONENT, MIN_RELATIVE_EXPONENT * usual) and not many:
        return None
    clear = exponent[:, last] > 3
    ratio = exp(float(np.median(steps[clear, last]))) if clear.any() else 1.0
    return NearDuplicates(last + 1, float(clear.mean()), ratio) if ratio > 1 + MIN_GAP / (last + 1) else None


def check_near_duplicates(context: Context) -> Iterator[Finding]:
    """Yield a finding if rows have near-duplicates in other groups, or of other subjects where subjects are known."""
    largest = max(s.groups.max_size for s in context.sets)
    rows = context.members
    X = context.table[rows].numpy()
    unit, other = rows.numpy(), "other rows"
    members = torch.cat([s.groups.members for s in context.sets])
    if context.subjects is not None:
        unit, other = context.subjects[rows].numpy(), "rows of other subjects"
    elif largest > 1 and len(members) == len(rows) and len(context.sets) == 1:
        of_row = torch.empty(int(rows.max()) + 1, dtype=torch.int64)
        of_row[members] = context.sets[0].groups.segments.index
        unit, other = of_row[rows].numpy(), "other groups"
    found = find_near_duplicates(X, unit, len(context.classes))
    if found is not None:
        yield Finding(
            "near_duplicates",
            f"{found.share:.0%} of the rows looked at have about {found.n_copies} near-duplicates in {other}, and the "
            f"next row is {found.ratio:.1f} times as far away: held-out groups do not show how well rows of new groups "
            "are predicted; pass subjects= to hold out all rows of a person or object together, or remove the copies",
        )
