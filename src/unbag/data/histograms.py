"""Short summaries of many numbers, in the types of JSON."""

import math
from typing import Any

import numpy as np


def histogram_of_sizes(sizes: np.ndarray, max_bins: int = 12) -> list[dict[str, int]]:
    """Count the groups of each size, or of each range of sizes where there are many."""
    low, counts = np.unique(sizes, return_counts=True)
    high = low
    if len(low) > max_bins:  # with edges in a constant ratio
        edges = np.unique(np.geomspace(low[0], low[-1] + 1, max_bins + 1).round().astype(np.int64))
        edges[-1] = low[-1] + 1
        low, high, counts = edges[:-1], edges[1:] - 1, np.histogram(sizes, edges)[0]
    bins = np.stack([low, high, counts], 1)[counts > 0].tolist()
    return [dict(zip(("from", "to", "groups"), values, strict=True)) for values in bins]


def evenly(n: int, max_numbers: int) -> np.ndarray:
    """Return numbers from 0 to n - 1 that are spread evenly and include both ends."""
    return np.linspace(0, n - 1, min(n, max_numbers)).round().astype(np.int64)


def plain(value: Any) -> Any:
    """Convert a value to JSON types: NaN and infinity become None, and other objects their text."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
