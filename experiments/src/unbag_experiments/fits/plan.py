"""The cells of the comparison: a table, a size of groups and a grouping, each with several draws and methods."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from unbag._utils.checks import check_choice
from unbag_experiments.fits.grouping import GROUPINGS, SIZES, n_training_rows, sizes_of
from unbag_experiments.fits.sets import SETS

SINGLE = ("match", "ridge", "linear", "kernel", "network", "trees")
"""Methods that the default is compared with."""
METHODS = ("default", *SINGLE, "release")
"""``"release"`` is the default fit of an earlier version; see :mod:`unbag_experiments.fits.methods`."""
EFFORTS = {"release": 60, "default": 20, "kernel": 5, "trees": 5, "network": 4, "linear": 2, "match": 1, "ridge": 0.1}
"""Relative cost of the methods."""
DRAWS = 3


@dataclass(frozen=True)
class Cell:
    """A fit: a method, on a draw of a table divided into groups.

    Examples
    --------
    >>> print(Cell("vehicle", "linear", 64, "clusters", seed=0))
    vehicle, groups of 64 (clusters), draw 0, linear
    """

    set: str
    method: str
    size: int
    grouping: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.set}, groups of {self.size:,} ({self.grouping}), draw {self.seed}, {self.method}"

    @property
    def key(self) -> str:
        """Return a name for files."""
        return "-".join(["fits", *map(str, asdict(self).values())]).replace(" ", "_")

    @classmethod
    def of(cls, line: dict[str, Any]) -> Cell:
        """Return the cell of a line of results."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__})


def places(name: str) -> list[tuple[int, str]]:
    """Return the sizes of groups and the groupings of a table; groupings take turns.

    Examples
    --------
    >>> places("vehicle")
    [(4, 'random'), (16, 'column'), (64, 'two columns')]
    """
    first = list(SETS).index(name)
    return [(size, GROUPINGS[(first + n) % len(GROUPINGS)]) for n, size in enumerate(sizes_of(name))]


def choices() -> dict[str, tuple[str, ...]]:
    """Return the names from which each option chooses."""
    return {"set": tuple(SETS), "size": tuple(map(str, SIZES)), "method": METHODS}


def select(
    sets: Collection[str] = (),
    sizes: Collection[int] = (),
    methods: Collection[str] = (),
    *,
    draws: int | None = None,
    final: bool = False,
) -> list[Cell]:
    """Return cells draw by draw, the longest first.

    Without names of tables, those by which thresholds are chosen, and with ``final`` all. Without methods, all but
    ``"release"``.
    """
    for option, names in (("set", sets), ("size", map(str, sizes)), ("method", methods)):
        for name in names:
            check_choice(option, name, choices()[option])
    cells = [
        Cell(name, method, size, grouping, draw)
        for draw in range(draws or DRAWS)
        for name, declared in SETS.items()
        if (name in sets if sets else final or declared.development)
        for size, grouping in places(name)
        if not sizes or size in sizes
        for method in methods or METHODS[:-1]
    ]
    return sorted(cells, key=lambda cell: (cell.seed, -effort(cell)))


def effort(cell: Cell) -> float:
    """Return the approximate cost of a cell: processes end together where the longest come first."""
    return EFFORTS[cell.method] * n_training_rows(SETS[cell.set].rows)
