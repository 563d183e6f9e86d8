"""The default beside single methods, cell by cell, and the counts that say how good it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unbag_experiments.fits.grouping import GROUPINGS, SIZES, sizes_of
from unbag_experiments.fits.plan import SINGLE, TABLE_METHODS, Cell
from unbag_experiments.fits.sets import SETS, TABLES

Line = Mapping[str, Any]
Lines = Mapping[Cell, Line]

NEAR = 1.0
"""Points of accuracy by which the default may be below the best single method."""
SAID_NEAR, SAID_FAR = 5.0, 10.0
"""Points between the accuracy that a fit claims and that which it has: what is wanted, and what needs a warning."""
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Place:
    """A table in groups of a size, with the finished fits of each method by their draws."""

    set: str
    size: int
    grouping: str
    fits: Mapping[str, Mapping[int, Line]]

    def accuracy(self, method: str) -> float | None:
        """Return the mean accuracy of a method in percent; None where it was not run."""
        return mean([100 * line["accuracy"] for line in self.fits[method].values()])

    def difference(self, method: str) -> float | None:
        """Return by how many points the default is above a method, on average over draws that both have."""
        ours, theirs = self.fits["default"], self.fits[method]
        return mean([100 * (ours[draw]["accuracy"] - theirs[draw]["accuracy"]) for draw in ours.keys() & theirs.keys()])

    @property
    def to_best(self) -> float | None:
        """By how many points the default is above the best single method that was run."""
        return min((own for method in SINGLE if (own := self.difference(method)) is not None), default=None)

    @property
    def complete(self) -> bool:
        """Whether the default and all single methods were run."""
        return all(self.fits[method] for method in ("default", *SINGLE))

    @property
    def overstated(self) -> list[float]:
        """By how many points each fit of the default says that it is better than it is."""
        return [overstatement(line) for line in self.fits["default"].values() if says(line)]


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return float(np.mean(values)) if values else None


def says(line: Line) -> bool:
    """Whether a fit says how accurate it is."""
    return line.get("estimated_accuracy") is not None


def overstatement(line: Line) -> float:
    """Return by how many points a fit says that it is better than it is."""
    return float(100 * (line["estimated_accuracy"] - line["accuracy"]))


def places(lines: Lines) -> list[Place]:
    """Return every table in groups of each size of which enough come out, run or not."""
    fits: dict[tuple[str, str, int | None, str | None], dict[int, Line]] = {}
    for cell, line in sorted(lines.items(), key=lambda item: item[0].seed):
        fits.setdefault((cell.set, cell.method, cell.size, cell.grouping), {})[cell.seed] = line

    def of(name: str, method: str, size: int, grouping: str) -> dict[int, Line]:
        return fits.get((name, method, 1, "random") if method == "all_labels" else (name, method, size, grouping), {})

    return [
        Place(name, size, grouping, {method: of(name, method, size, grouping) for method in TABLE_METHODS})
        for size in SIZES
        for name in TABLES
        if size in sizes_of(name)
        for grouping in GROUPINGS
    ]


@dataclass(frozen=True)
class Standing:
    """How the default stands in some places, in points of accuracy."""

    planned: int
    compared: int
    """Places in which the default and at least one single method were run."""
    incomplete: int
    """Those of them in which a single method is missing."""
    near: int
    """In which the default is at most one point below the best single method."""
    worst: tuple[float, Place] | None
    to_best: float | None
    """Mean difference to the best single method."""
    to_match: tuple[float, int, int] | None
    """Mean difference to the match of mean proportions, in how many places it is positive, and of how many."""
    estimated: int
    """Fits of the default that say how accurate they are."""
    estimated_near: int
    """Those within five points of the truth."""
    estimated_near_evenly: float | None
    """The share of these, if each place counts the same, however often it was drawn."""
    unestimated: int
    """Those that say nothing, because groups are too few."""
    said: tuple[int, int]
    """Places that are within five points of the truth on average over draws, and of how many."""
    silent: int
    """Those that say more than ten points too much, without a warning."""


def standing(chosen: Sequence[Place]) -> Standing:
    """Count how the default stands in some places."""
    compared = [(own, place) for place in chosen if (own := place.to_best) is not None]
    to_match = [own for place in chosen if (own := place.difference("mean_proportions")) is not None]
    defaults = [line for place in chosen for line in place.fits["default"].values()]
    estimated = [line for line in defaults if says(line)]
    said = [own for place in chosen if (own := mean(place.overstated)) is not None]
    shares = [mean([abs(own) <= SAID_NEAR + ROUNDING for own in place.overstated]) for place in chosen]
    average = mean(to_match)
    return Standing(
        planned=len(chosen),
        compared=len(compared),
        incomplete=sum(not place.complete for _, place in compared),
        near=sum(own >= -NEAR - ROUNDING for own, _ in compared),
        worst=min(compared, key=lambda item: item[0], default=None),
        to_best=mean([own for own, _ in compared]),
        to_match=None if average is None else (average, sum(own > 0 for own in to_match), len(to_match)),
        estimated=len(estimated),
        estimated_near=sum(abs(overstatement(line)) <= SAID_NEAR + ROUNDING for line in estimated),
        estimated_near_evenly=mean([share for share in shares if share is not None]),
        unestimated=len(defaults) - len(estimated),
        said=(sum(abs(own) <= SAID_NEAR + ROUNDING for own in said), len(said)),
        silent=sum(overstatement(line) > SAID_FAR + ROUNDING and not line["warnings"] for line in estimated),
    )


def scopes(chosen: Sequence[Place]) -> dict[str, list[Place]]:
    """Return all places, those of sets of development, and those of the others."""
    return {
        "all sets": list(chosen),
        "sets of development": [place for place in chosen if SETS[place.set].development],
        "sets looked at once": [place for place in chosen if not SETS[place.set].development],
    }


def bag_areas(lines: Lines, name: str, method: str) -> list[float]:
    """Return the area under the ROC curve of each fold of a set of bags, in percent."""
    return [100 * line["auc"] for cell, line in lines.items() if (cell.set, cell.method) == (name, method)]
