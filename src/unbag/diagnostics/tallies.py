"""Tallies: whether the values of a column, counted in each group, are the counts of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, log

import numpy as np
from torch import Tensor

# A column is suspicious if, of as many unrelated columns as there are, fewer than this would look so by chance.
CHANCE = 0.02
# A column with more values than this is no coding of a few classes.
MOST_VALUES = 64
# Tables of tallies stay this small.
MOST_TALLIES = 20_000_000


@dataclass(frozen=True)
class Coding:
    """Which class each value of a column stands for."""

    classes: np.ndarray  # (values,)
    log_chance: float
    """Logarithm of the probability that an unrelated column has such a coding."""


def find_coding(codes: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> Coding | None:
    """Return the class that each value stands for, if the tallies of all groups are their counts.

    Several values may stand for one class, as long as there are few, and no more than groups. ``codes`` are whole
    numbers from -1 on for the value of each member, group by group, ``counts`` (groups, k).

    Examples
    --------
    >>> coding = find_coding(np.array([0, 0, 1, 1, 1, 1]), np.array([2, 2, 2]), np.array([[0, 2], [2, 0], [2, 0]]))
    >>> coding.classes.tolist()
    [1, 0]
    """
    counts = np.asarray(counts)
    occur = np.flatnonzero(counts.any(0))
    tallies = _tally(codes, sizes, len(occur), max(min(len(sizes), MOST_VALUES), len(occur)))
    if tallies is None:
        return None
    n_values = tallies.shape[1]
    one_each = n_values == len(occur)
    classes = _match(tallies, counts) if one_each else _solve(tallies, counts)
    if classes is None:
        return None
    log_ways = lgamma(n_values + 1) if one_each else n_values * log(len(occur))  # of how many codings
    return Coding(classes, _log_chance(counts[:, occur]) + log_ways)


def find_coding_within(codes: np.ndarray, sizes: np.ndarray, low: np.ndarray, high: np.ndarray) -> Coding | None:
    """Return the class that each value stands for, if the tallies of all groups are within the bounds of their counts.

    Parameters
    ----------
    codes, sizes
        As for :func:`find_coding`.
    low, high
        Bounds of the counts of the classes, ``(groups, k)``.

    Examples
    --------
    >>> low = np.array([[0, 1], [1, 0]])
    >>> find_coding_within(np.array([0, 0, 1, 1]), np.array([2, 2]), low, low + 1).classes.tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (slow to import)
    from scipy.stats import binom  # noqa: PLC0415

    k = low.shape[1]
    tallies = _tally(codes, sizes, k, k)
    if tallies is None:
        return None
    wrong = [((tallies < low[:, [j]]) | (tallies > high[:, [j]])).any(0) for j in range(k)]  # (classes, values)
    classes, values = linear_sum_assignment(np.array(wrong, dtype=float))
    if any(wrong[j][value] for j, value in zip(classes, values, strict=True)):
        return None
    shares = tallies.sum(0)[values] / tallies.sum()
    inside = binom.cdf(high, sizes[:, None], shares) - binom.cdf(low - 1, sizes[:, None], shares)  # (groups, k)
    # All classes of a group are within their bounds at most as often as one of them is.
    return Coding(np.argsort(values), float(np.log(inside.min(1)).sum()) + lgamma(k + 1))


def _tally(codes: np.ndarray, sizes: np.ndarray, least: int, most: int) -> np.ndarray | None:
    """Return how often each value occurs in each group, ``(groups, values)``, if there are so many different values."""
    values, codes = np.unique(codes, return_inverse=True)
    n_groups, n_values = len(sizes), len(values)
    if not 2 <= least <= n_values <= most or n_groups * n_values > MOST_TALLIES:
        return None
    which = np.repeat(np.arange(n_groups), sizes) * n_values + codes
    return np.bincount(which, minlength=n_groups * n_values).reshape(n_groups, n_values)


def _match(tallies: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """Return the class whose counts are the tallies of each value, if every value has one of its own."""
    by_counts = {column.tobytes(): place for place, column in enumerate(counts.T.astype(np.int64))}
    matches = [by_counts.pop(column.tobytes(), None) for column in tallies.T.astype(np.int64)]
    return None if None in matches else np.array(matches)


def _solve(tallies: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """Return the same where several values stand for one class, if there is only one way."""
    solution, _, rank, _ = np.linalg.lstsq(tallies.astype(float), counts.astype(float), rcond=None)  # (values, k)
    if rank < tallies.shape[1]:
        return None
    classes = solution.argmax(1)
    return classes if np.array_equal(tallies @ np.eye(counts.shape[1], dtype=int)[classes], counts) else None


def _log_chance(counts: np.ndarray) -> float:
    """Return the log-probability of these counts if every member had the shares of the classes."""
    from scipy.special import gammaln, xlogy  # noqa: PLC0415 (slow to import)

    shares = counts.sum(0) / counts.sum()
    per_group = gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1) + xlogy(counts, shares).sum(1)
    return float(per_group.sum())


def log_orders(answers: Tensor) -> float:
    """Return the logarithm of how many orders these answers could stand in."""
    counts = answers.unique(dim=0, return_counts=True)[1].tolist()
    return lgamma(len(answers) + 1) - sum(lgamma(count + 1) for count in counts)


def once_in(log_chance: float) -> str:
    """Write a small probability as people say it.

    Examples
    --------
    >>> once_in(log(0.001)), once_in(-1000.0)
    ('once in 1,000 times', 'less than once in 1e+09 times')
    """
    return f"once in {exp(-log_chance):,.0f} times" if log_chance > -log(1e9) else "less than once in 1e+09 times"
