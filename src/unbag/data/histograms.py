"""Histograms and evenly spread samples, so that many numbers take little space."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def histogram(values: np.ndarray, edges: np.ndarray) -> list[int]:
    """Return how many values are in each bin; the last bin holds its upper end too.

    Examples
    --------
    >>> histogram(np.array([0.0, 0.1, 1.0]), np.linspace(0, 1, 3))
    [2, 1]
    """
    return np.histogram(values, edges)[0].tolist()


def span(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the edges of bins that cover all values.

    Examples
    --------
    >>> span(np.array([1.0, 3.0]), 2).tolist()
    [1.0, 2.0, 3.0]
    """
    return np.histogram_bin_edges(values, n_bins)


def histogram_of_sizes(sizes: np.ndarray, most: int = 12) -> list[dict[str, int]]:
    """Return how many groups are of which size, or from which size to which where there are many sizes.

    Examples
    --------
    >>> histogram_of_sizes(np.array([2, 2, 5]))
    [{'from': 2, 'to': 2, 'groups': 2}, {'from': 5, 'to': 5, 'groups': 1}]
    """
    distinct, counts = np.unique(sizes, return_counts=True)
    if len(distinct) <= most:
        return [
            {"from": int(size), "to": int(size), "groups": int(n)} for size, n in zip(distinct, counts, strict=True)
        ]
    # Sizes differ by factors rather than by steps.
    edges = np.unique(np.geomspace(distinct[0], distinct[-1] + 1, most + 1).round().astype(np.int64))
    edges[-1] = distinct[-1] + 1
    in_bin = np.histogram(sizes, edges)[0]
    return [
        {"from": int(low), "to": int(high) - 1, "groups": int(n)}
        for low, high, n in zip(edges[:-1], edges[1:], in_bin, strict=True)
        if n
    ]


def evenly(n: int, most: int) -> np.ndarray:
    """Return at most so many of the numbers from 0 to n - 1, spread evenly, the first and the last among them.

    Examples
    --------
    >>> evenly(3, 5).tolist(), evenly(9, 3).tolist()
    ([0, 1, 2], [0, 4, 8])
    """
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).round().astype(np.int64)


def plain(value: Any) -> Any:
    """Return the same in words that JSON has: NaN and infinity become null, and what JSON cannot hold its text.

    Examples
    --------
    >>> plain({"a": np.float64(1.5), "b": [float("nan"), len]})
    {'a': 1.5, 'b': [None, '<built-in function len>']}
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
