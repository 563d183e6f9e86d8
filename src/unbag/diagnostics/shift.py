"""Shift between training rows and new ones: means of columns that differ by more than groups explain."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm
from torch import Tensor

from unbag._utils.findings import Finding
from unbag._utils.problems import list_some
from unbag.data.groups import Groups
from unbag.data.row_source import SparseRows

CHANCE, MIN_ERRORS = 0.01, 5  # probability of a false alarm in a table; standard errors by which means differ at least
MIN_EFFECT = 0.2  # in standard deviations of training rows; what is called a small effect
NUMBERS_AT_ONCE = 2**20
STATISTICS = ("n", "mean", "variance", "design")  # what is kept of the columns of training rows


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean and variance of the values of each column that are not missing, (columns,) each."""

    n: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray | Tensor | SparseRows) -> "Moments":
        """Compute those of a table."""
        if isinstance(X, SparseRows):
            return cls(*X.moments())
        X = np.asarray(X.cpu() if isinstance(X, Tensor) else X, dtype=np.float64)
        known = ~np.isnan(X)
        n = known.sum(0)
        mean = np.where(known, X, 0).sum(0) / np.maximum(n, 1)
        return cls(n, mean, (np.where(known, X - mean, 0) ** 2).sum(0) / np.maximum(n, 1))

    def __add__(self, other: "Moments") -> "Moments":
        n = self.n + other.n
        share = other.n / np.maximum(n, 1)
        apart = other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance + share * (1 - share) * apart**2
        return Moments(n, self.mean + share * apart, variance)


def describe_features(X: np.ndarray, groups: Sequence[Groups]) -> dict[str, list[float]]:
    """Return number, mean and variance of each column over rows in groups, and its design effect, as JSON holds them.

    The design effect is the variance of a mean where groups are drawn, over that where rows are.
    """
    rows = np.unique(np.concatenate([g.members.numpy() for g in groups]))
    local = [(np.searchsorted(rows, g.members.numpy()), g.offsets[:-1].numpy()) for g in groups]
    parts = []
    at_once = max(1, NUMBERS_AT_ONCE // len(rows))
    for first in range(0, X.shape[1], at_once):
        columns = X[rows, first : first + at_once].astype(np.float64)
        moments = Moments.of(columns)
        apart = np.nan_to_num(columns - moments.mean)
        design = np.ones(columns.shape[1])
        for members, starts in local:
            each = apart[members]
            totals, squares = np.add.reduceat(each, starts, 0), (each**2).sum(0)
            ratio = np.divide((totals**2).sum(0), squares, out=np.ones_like(squares), where=squares > 0)
            design = np.maximum(design, ratio)
        parts.append((moments.n, moments.mean, moments.variance, design))
    values = map(np.concatenate, zip(*parts, strict=True))
    return {name: of_columns.tolist() for name, of_columns in zip(STATISTICS, values, strict=True)}


def find_shift(
    known: Mapping[str, Sequence[float]], new: Moments, names: Sequence[Any] | None = None
) -> Iterator[Finding]:
    """Yield which columns have another mean in new rows than in those that :func:`describe_features` has seen."""
    n, mean, variance, design = (np.array(known[name], dtype=float) for name in STATISTICS)
    comparable = (variance > 0) & (np.minimum(n, new.n) > 1)
    n, variance, n_new = (np.where(comparable, values, 1) for values in (n, variance, new.n))
    apart = np.where(comparable, (new.mean - mean) / np.sqrt(variance), 0)
    errors = np.abs(apart) / np.sqrt(design * (1 / n + new.variance / variance / n_new))
    limit = max(MIN_ERRORS, float(norm.isf(CHANCE / (2 * len(mean)))))
    shifted = np.flatnonzero((errors > limit) & (np.abs(apart) > MIN_EFFECT))
    if len(shifted):
        worst = shifted[np.argsort(-np.abs(apart[shifted]), kind="stable")]
        sentences = (
            f"{place if names is None else names[place]} by {apart[place]:+.2g} ({errors[place]:.0f} standard errors)"
            for place in worst.tolist()
        )
        yield Finding(
            "shift",
            f"the mean of {len(shifted):,} of {len(mean):,} columns differs between these {int(new.n.max()):,} rows "
            f"and those of fit, in standard deviations: {list_some(sentences, form=str)}; the model has not seen rows "
            "like these",
        )
