"""Cells in which UUM is below the paper's mean, and differences from the log-likelihood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from unbag_experiments.comparison import Row
from unbag_experiments.statistics import LEAST_TRIALS, SIGNIFICANCE, interval, standard_error


def shortfalls(rows: Iterable[Row]) -> list[str]:
    """Describe the cells in which UUM is below the paper's mean, the largest difference first."""
    below = [row for row in rows if row.key.method == "uum" and row.standing in ("within", "below")]
    return [
        f"{row.key.dataset} ({row.key.problem.replace('_', ' ')}) by {-(row.difference or 0.0):.2f}"
        + (", more than the paper's standard deviation" if row.standing == "below" else "")
        for row in sorted(below, key=lambda row: (row.difference or 0.0, row.key[:3]))
    ]


@dataclass(frozen=True)
class Gap:
    """Differences in accuracy between UUM and the log-likelihood, one per cell, and what their tests can detect."""

    differences: Sequence[float]
    significant: int
    detectable: float  # median over cells, before Holm's correction

    @property
    def mean(self) -> float:
        """Mean over cells, in points."""
        return float(np.mean(self.differences))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Confidence interval of the mean, with cells as the units."""
        return interval(list(self.differences), 0.0)


def gaps(rows: Iterable[Row]) -> dict[str, Gap]:
    """Compare UUM with the log-likelihood in cells with at least five common seeds, table by table."""
    by_key = {row.key: row for row in rows if row.trials}
    tables: dict[str, list[tuple[float, bool, float]]] = defaultdict(list)
    for key, row in by_key.items():
        uum = by_key.get(key._replace(method="uum"))
        if key.method != "log_likelihood" or uum is None or row.copied == row.trials:
            continue
        seeds = sorted(uum.accuracies.keys() & row.accuracies.keys())
        if len(seeds) >= LEAST_TRIALS:
            pairs = [uum.accuracies[seed] - row.accuracies[seed] for seed in seeds]
            least = float(stats.t.ppf(1 - SIGNIFICANCE / 2, len(seeds) - 1)) * standard_error(pairs, row.labels.overlap)
            tables[key.table].append((float(np.mean(pairs)), row.labels.mark in ("better", "worse"), least))
    return {name: _gap(cells) for name, cells in tables.items()}


def _gap(cells: Sequence[tuple[float, bool, float]]) -> Gap:
    differences, significant, least = zip(*cells, strict=True)
    return Gap(differences, sum(significant), float(np.median(least)))
