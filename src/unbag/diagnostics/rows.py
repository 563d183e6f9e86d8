"""Checks of rows: columns without information, few groups, and copies or near-duplicates in other groups."""

from collections.abc import Iterator
from math import exp, log

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from unbag._utils.checks import format_indices
from unbag._utils.findings import Finding
from unbag.data.groups import Groups
from unbag.data.scaling import fit_scaling
from unbag.diagnostics.registry import Context, register_check

FIRST_ROWS = 1000
MIN_COPIES = 0.01  # share of the rows below which copies change no figure
# Number of standard deviations by which a number of chance events may exceed its expectation and, because the
# expectation is rough where values are few, factor.
MAX_DEVIATIONS, MAX_FACTOR = 5, 10

# Bounds of the search for near-duplicates, which takes at most a few seconds.
MAX_ROWS, N_QUERIES, MAX_DISTANCES, MAX_COLUMNS = 200_000, 500, 25_000_000, 50
MAX_COPIES = 32  # near-duplicates are among so many nearest rows; as many further ones show usual distances
MIN_ROWS = 3 * MAX_COPIES
PARTS = (1, 4, 16)  # rows are thinned out by these factors until near-duplicates are few enough to be found
# Rows with near-duplicates must be so many different ones, and so many for each class: fewer may be classes or other
# well-separated clusters of rows, which nothing in the data distinguishes from repeated measurements.
MIN_OBJECTS, OBJECTS_PER_CLASS = 20, 3
MIN_VALUES = 20  # columns with fewer values have no scale
MIN_MEAN_EXPONENT, MIN_RELATIVE_EXPONENT = 2.0, 1.5  # of all rows; 1 is expected for any number of neighbours
# Distance to the next row less that to the last of j near-duplicates, in parts of the j-th of the latter; on a curved
# surface distances grow faster, but without a gap. The second holds for columns with few values.
MIN_GAP, MIN_COARSE_GAP = 1.45, 1.6
CLEAR_EXPONENT = 3.0  # of a row that has near-duplicates; chance makes e^-3 of all rows so
LARGE_EXPONENT, MIN_LARGE_SHARE = 12.0, 0.05  # chance makes e^-12 of the rows so; this share of them is enough
# In columns with few values, so many rows must have near-duplicates: some patterns, such as the same answer to all
# questions, are frequent by chance.
MIN_COARSE_SHARE = 0.3


@register_check("rows")
def check_columns(context: Context) -> Iterator[Finding]:
    """Yield columns of a table that do not vary or have no value, and whether there are fewer groups than columns."""
    X = context.X
    if X is None or X.ndim != 2:
        return
    rows = X[context.members]
    missing, constant = rows.isnan().all(0), fit_scaling(rows).factor == 0
    varying = int((~constant).sum())
    if varying == 0:
        message = f"all {X.shape[1]:,} columns of X are the same in every row, so that rows cannot be distinguished"
        yield Finding("constant_columns", message, fatal=True)
    elif bool(constant.any()):
        yield Finding(
            "constant_columns",
            f"{format_indices('column', constant, context.name_column)} of X: constant, or varying by no more than "
            "rounding errors, and ignored; measure in another unit if the differences matter",
        )
    if 0 < int(missing.sum()) < len(missing):
        yield Finding(
            "missing_columns",
            f"{format_indices('column', missing, context.name_column)} of X: no value in any row of the groups, so "
            "that nothing can be learned from it; leave it out",
        )
    n_groups = context.n_groups or sum(len(s.groups) for s in context.sets)
    compared = n_groups - len(context.sets)  # with the first of its set
    if compared < varying:
        yield Finding(
            "few_groups",
            f"{n_groups:,} groups can be compared in {compared:,} ways, fewer than the {varying:,} columns, so that a "
            "linear model can explain any observations; collect more groups or leave columns out, and trust only what "
            "held-out groups show",
        )


@register_check("rows")
def check_copies(context: Context) -> Iterator[Finding]:
    """Yield how many rows have a copy, or a near-duplicate, in another group."""
    copies = [f for s in context.sets if s.groups.max_size > 1 for f in _find_copies(context, s.groups)]
    yield from copies or _find_near_duplicates(context)


def _find_copies(context: Context, groups: Groups) -> Iterator[Finding]:
    """Yield how many rows have an exact copy in another group.

    If columns have few values, rows agree by chance. That chance is at most that of agreement in half of the columns,
    which rows that differ in others show.
    """
    X, members = context.table.numpy(), groups.members.numpy()
    unit = (groups.segment if context.subjects is None else context.subjects[groups.members]).numpy()
    n_values = _count_values(X)
    order = np.argsort(-n_values, kind="stable")[: (n_values > 1).sum()]
    if len(order) < 2:
        return
    halves = np.stack([_hash_rows(X[:, order[first::2]])[members] for first in (0, 1)], 1)  # (memberships, 2)
    distinct, copy = np.unique(halves, axis=0, return_inverse=True)
    several = _differ_within(copy.ravel(), members) & _differ_within(copy.ravel(), unit)
    n, n_copied = len(np.unique(members)), len(np.unique(members[several]))
    alike = [np.unique(half, return_inverse=True, return_counts=True)[1:] for half in distinct.T]
    by_chance = max(float((counts[place] > 1).mean()) for place, counts in alike) * n
    limit = max(by_chance + MAX_DEVIATIONS * max(by_chance, 1) ** 0.5, MAX_FACTOR * by_chance)
    if n_copied >= MIN_COPIES * n and n_copied > limit:
        yield Finding(
            "copies",
            f"{n_copied:,} of {n:,} rows ({n_copied / n:.0%}) have an exact copy in another group, where chance makes "
            f"at most {by_chance:,.0f}: held-out groups do not show how well new rows are predicted; keep the copies "
            "of a row in one group, pass subjects=, or remove them",
        )


def _count_values(X: np.ndarray) -> np.ndarray:
    """Return the number of different values of each column in the first rows."""
    some = np.sort(X[:FIRST_ROWS], axis=0)  # missing values at the end
    return 1 + ((some[1:] != some[:-1]) & ~np.isnan(some[:-1])).sum(0)


def _hash_rows(X: np.ndarray) -> np.ndarray:
    """Return a number of each row, (rows,), which is the same for equal rows only."""
    bits = np.ascontiguousarray(X + 0.0).view(np.uint64)  # minus zero as zero
    weights = np.random.default_rng(0).integers(2**64, size=X.shape[1], dtype=np.uint64)
    return ((bits ^ (bits >> np.uint64(32))) * weights).sum(
        1
    )  # the bits of small numbers differ only in the upper half


def _differ_within(which: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each entry whether the values of all entries with its number differ."""
    first = np.empty(which.max() + 1, dtype=values.dtype)
    first[which] = values
    differ = np.zeros(len(first), dtype=bool)
    differ[which[values != first[which]]] = True
    return differ[which]


def _find_near_duplicates(context: Context) -> Iterator[Finding]:
    """Yield a finding if rows have near-duplicates in other groups, or of other subjects where subjects are known."""
    s, rows = context.sets[0], context.members
    unit, other = rows, "other rows"
    if context.subjects is not None:
        unit, other = context.subjects[rows], "rows of other subjects"
    elif len(context.sets) == 1 and len(s.groups.members) == len(rows) > len(s.groups):
        of_row = torch.empty(int(rows.max()) + 1, dtype=torch.int64)
        of_row[s.groups.members] = s.groups.segments.index
        unit, other = of_row[rows], "other groups"
    found = find_near_duplicates(context.table[rows].numpy(), unit.numpy(), len(context.classes))
    if found is not None:
        n_copies, share, ratio = found
        yield Finding(
            "near_duplicates",
            f"{share:.0%} of the rows looked at have about {n_copies} near-duplicates in {other}, and the "
            f"next row is {ratio:.1f} times as far away: held-out groups do not show how well rows of new groups "
            "are predicted; pass subjects= to hold out all rows of a person or object together, or remove the copies",
        )


def find_near_duplicates(X: np.ndarray, unit: np.ndarray, n_classes: int = 2) -> tuple[int, float, float] | None:
    """Find rows, with NaN where a value is missing, whose nearest rows of other units are much closer than the next.

    Returns the number of near-duplicates of such a row, the share of these rows among those that were looked at, and
    the median of the distance to the next row over the distance to the last near-duplicate; None if there are none.

    In d dimensions the ratio of the distances to the j-th and the next neighbour exceeds r with probability r^(-j d),
    whatever the density; the exponent j d log r is 1 on average. Rows with j near-duplicates have a larger one there. d
    is estimated from neighbours further away. Columns are replaced by ranks, so that neither outliers nor rounding
    matter. Each class may be a narrow cluster.
    """
    random = np.random.default_rng(0)
    for part in PARTS:
        n = min(len(X) // part, MAX_ROWS)
        if n < MIN_ROWS:
            break
        rows = np.arange(n) if n == len(X) else random.choice(len(X), n, replace=False)
        if (found := _compare_neighbors(X[rows], unit[rows], n_classes, random)) is not None:
            return found[0] * len(X) // n, *found[1:]
    return None


def _compare_neighbors(
    X: np.ndarray, unit: np.ndarray, n_classes: int, random: np.random.Generator
) -> tuple[int, float, float] | None:
    n = len(X)
    ranks, step = _rank_columns(X, random)
    if ranks.shape[1] < 2 or (log_distance := _find_distances(ranks, step, unit, random)) is None:
        return None
    growth = float(np.median(log_distance[:, -1] - log_distance[:, MAX_COPIES]))
    dimension = log(2 * MAX_COPIES / (MAX_COPIES + 1)) / max(growth, 1e-9)
    n_objects = max(MIN_OBJECTS, OBJECTS_PER_CLASS * n_classes)
    most = max(1, min(MAX_COPIES, n // n_objects))
    steps = np.diff(log_distance[:, : MAX_COPIES + 1], axis=1)  # (queries, neighbours)
    exponent = steps * dimension * np.arange(1, MAX_COPIES + 1)
    mean, usual = exponent.mean(0)[:most], np.median(exponent.mean(0))
    last = int(mean.argmax())
    clear = exponent[:, last] > CLEAR_EXPONENT
    all_clear = mean[last] >= max(MIN_MEAN_EXPONENT, MIN_RELATIVE_EXPONENT * usual) and n * (
        clear.mean() - exp(-CLEAR_EXPONENT)
    ) >= n_objects * (last + 2)
    large = exponent[:, :most].max(1) > LARGE_EXPONENT * max(usual, 1)
    n_large = n * (large / (exponent[:, :most].argmax(1) + 2)).mean()  # a row and its copies are one object
    if not all_clear and (large.mean() < MIN_LARGE_SHARE or n_large < n_objects):
        return None
    ratio = exp(float(np.median(steps[clear, last]))) if clear.any() else 1.0
    gap = MIN_COARSE_GAP if step else MIN_GAP
    if ratio <= 1 + gap / (last + 1) or (step and clear.mean() < MIN_COARSE_SHARE):
        return None
    return last + 1, float(clear.mean()), ratio


def _find_distances(ranks: np.ndarray, step: float, unit: np.ndarray, random: np.random.Generator) -> np.ndarray | None:
    """Return logarithms of distances to the nearest rows of other units, ``(queries, 2 MAX_COPIES)``, if these exist.

    Distances that differ by less than the step between values are alike, and are put in random order.
    """
    n, many = len(ranks), 2 * MAX_COPIES
    queries = random.choice(n, min(N_QUERIES, MAX_DISTANCES // n, n), replace=False)
    n_neighbors = min(many + min(int(np.unique(unit, return_counts=True)[1].max()), many), n)
    distance, place = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(ranks).kneighbors(ranks[queries])
    outside = unit[place] != unit[queries][:, None]
    complete = outside.sum(1) >= many
    if complete.sum() < MIN_ROWS / 2:
        return None
    order = np.argsort(~outside[complete], axis=1, kind="stable")[:, :many]
    distance = np.take_along_axis(distance[complete], order, 1)
    return np.log(np.maximum(np.sort(np.sqrt(distance**2 + step**2 * random.random(distance.shape)), axis=1), 1e-9))


def _rank_columns(X: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return ranks between 0 and 1 of some columns, shape ``(rows, columns)``, and the step between their values.

    In columns with few values, such as answers to a questionnaire, rows agree by chance. They are ignored if there are
    others. Otherwise the step, the root mean square over columns, shows which distances are alike.
    """
    n = len(X)
    n_values = _count_values(X)
    chosen = np.flatnonzero(n_values >= MIN_VALUES)
    if coarse := len(chosen) < 2:
        chosen = np.flatnonzero(n_values > 1)
    if len(chosen) > MAX_COLUMNS:
        chosen = random.choice(chosen, MAX_COLUMNS, replace=False)
    ranks = np.empty((n, len(chosen)), dtype=np.float32)
    for place, j in enumerate(chosen):
        ranks[np.lexsort((random.permutation(n), X[:, j])), place] = np.arange(n) / n
        if coarse:  # the mean rank of the rows with this value
            value, counts = np.unique(X[:, j], return_inverse=True, return_counts=True)[1:]
            ranks[:, place] = (np.bincount(value, ranks[:, place]) / counts)[value]
    return ranks, float(np.sqrt(np.square(1 / n_values[chosen]).sum() / max(len(chosen), 1))) if coarse else 0.0
