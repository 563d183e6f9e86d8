"""The default fit compared with single methods and with an earlier version, cell by cell and on average."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unbag_experiments.fits.plan import SINGLE, Cell, places
from unbag_experiments.fits.sets import SETS

Line = Mapping[str, Any]
Lines = Mapping[Cell, Line]

NEAR = 1.0
"""Points of accuracy by which the default may be below the best single method."""
N_RESAMPLES = 2_000
ROUNDING = 1e-9


class Mean(NamedTuple):
    """A mean with its 95 % interval, by resampling tables: cells of a table are not independent."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class Place:
    """A table in groups of a size, with the finished fits of each method by their draws."""

    set: str
    size: int
    grouping: str
    fits: Mapping[str, Mapping[int, Line]]

    def accuracy(self, method: str) -> float | None:
        """Return the mean accuracy of a method in percent; None where it was not run."""
        values = [100 * line["accuracy"] for line in self.fits.get(method, {}).values()]
        return float(np.mean(values)) if values else None

    def difference(self, method: str, reference: str = "default") -> float | None:
        """Return the points by which the reference is above a method, on average over draws that both have."""
        first, second = self.fits.get(reference, {}), self.fits.get(method, {})
        values = [100 * (first[n]["accuracy"] - second[n]["accuracy"]) for n in first.keys() & second.keys()]
        return float(np.mean(values)) if values else None

    @property
    def to_best(self) -> float | None:
        """Return the points by which the default is above the best single method; None where one was not run."""
        found = [d for method in SINGLE if (d := self.difference(method)) is not None]
        return min(found) if len(found) == len(SINGLE) else None


def collect(lines: Lines) -> list[Place]:
    """Return all cells of the plan with the fits that have been run.

    Examples
    --------
    >>> len(collect({}))
    83
    """
    fits: dict[tuple[str, int, str], dict[str, dict[int, Line]]] = {}
    for cell, line in sorted(lines.items(), key=lambda item: item[0].seed):
        by_method = fits.setdefault((cell.set, cell.size, cell.grouping), {})
        by_method.setdefault(cell.method, {})[cell.seed] = line
    return [Place(name, *where, fits.get((name, *where), {})) for name in SETS for where in places(name)]


def scopes(chosen: Sequence[Place]) -> dict[str, list[Place]]:
    """Return all cells, those of tables by which thresholds are chosen, and those of the others."""
    return {
        "all": list(chosen),
        "development": [place for place in chosen if SETS[place.set].development],
        "evaluation": [place for place in chosen if not SETS[place.set].development],
    }


def average(chosen: Sequence[Place], measure: Callable[[Place], float | None]) -> Mean | None:
    """Return the mean of a measure over cells; None where no cell has it."""
    by_set: dict[str, list[float]] = {}
    for place in chosen:
        if (value := measure(place)) is not None:
            by_set.setdefault(place.set, []).append(value)
    if not by_set:
        return None
    sums, sizes = (np.array([f(values) for values in by_set.values()], float) for f in (sum, len))
    drawn = np.random.default_rng(0).integers(0, len(sums), (N_RESAMPLES, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / sizes[drawn].sum(1), (2.5, 97.5))
    return Mean(float(sums.sum() / sizes.sum()), float(low), float(high), int(sizes.sum()))


def is_near(place: Place) -> float | None:
    """Return 100 where the default is at most a point below the best single method, else 0."""
    return None if place.to_best is None else 100.0 * (place.to_best >= -NEAR - ROUNDING)


def worst(chosen: Sequence[Place]) -> Place | None:
    """Return the cell in which the default is furthest below the best single method."""
    compared = [place for place in chosen if place.to_best is not None]
    return min(compared, key=lambda place: place.to_best or 0.0, default=None)


def seconds(chosen: Sequence[Place], method: str) -> np.ndarray:
    """Return the mean CPU seconds of a method in each cell, with prediction."""
    fits = [place.fits[method].values() for place in chosen if place.fits.get(method)]
    return np.array([np.mean([line["cpu_seconds"] for line in lines]) for lines in fits])


def fits_of(chosen: Sequence[Place], method: str) -> list[Line]:
    """Return the fits of a method in some cells."""
    return [line for place in chosen for line in place.fits.get(method, {}).values()]


class Estimates(NamedTuple):
    """How estimates of accuracy compare with the accuracy on the test rows."""

    n_fits: int
    n_estimated: int
    covered: float
    """Percent of the intervals that contain the accuracy; the standard error of the test rows widens them."""
    half_width: float
    """Median, in points."""
    near: float
    """Percent of the estimates within five points."""
    error: float
    """Mean absolute error of the estimate, in points."""
    error_of_confidence: float
    """Mean absolute error of the mean confidence in the same fits."""


def judge_estimates(lines: Sequence[Line]) -> Estimates | None:
    """Compare estimates with the accuracy on the test rows; None where there is no estimate."""
    chosen = [line for line in lines if line.get("estimated_accuracy") is not None and line.get("interval")]
    if not chosen:
        return None
    actual, estimate, confidence = (
        np.array([line[name] for line in chosen]) for name in ("accuracy", "estimated_accuracy", "confidence")
    )
    low, high = np.array([line["interval"] for line in chosen]).T
    noise = 1.96 * np.sqrt(actual * (1 - actual) / np.array([line["rows"]["test"] for line in chosen]))
    above, below = np.hypot(high - estimate, noise), np.hypot(estimate - low, noise)
    covered = (actual <= estimate + above) & (actual >= estimate - below)
    error = np.abs(estimate - actual)
    return Estimates(
        len(lines),
        len(chosen),
        100 * covered.mean(),
        100 * float(np.median((high - low) / 2)),
        100 * (error <= 0.05).mean(),
        100 * error.mean(),
        100 * np.abs(confidence - actual).mean(),
    )


def miscalibration(lines: Sequence[Line]) -> float | None:
    """Return the mean absolute difference of mean confidence and accuracy, in points."""
    errors = [100 * abs(line["confidence"] - line["accuracy"]) for line in lines]
    return float(np.mean(errors)) if errors else None
