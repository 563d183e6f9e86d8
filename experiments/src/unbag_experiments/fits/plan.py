"""Which cells the table of default fits has, in the order in which they are run."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from unbag._utils.checks import check_choice
from unbag_experiments.fits.grouping import GROUPINGS, SIZES, n_training_rows, sizes_of
from unbag_experiments.fits.sets import BAGS, SETS, TABLES
from unbag_experiments.splits import FOLDS

SINGLE = ("linear", "network", "trees", "mean_proportions")
"""Methods of tables that the default is compared with."""
TABLE_METHODS = ("default", *SINGLE, "all_labels")
BAG_METHODS = ("default", "forest", "svm")
EFFORTS = {"default": 6, "trees": 2, "mean_proportions": 2, "network": 1.5, "linear": 1, "all_labels": 1}
EFFORTS |= {"forest": 0.3, "svm": 0.1}
"""How long methods take beside each other, about."""
BAG_ROWS = 2_000
"""Rows of a table that take about as long as bags do."""
METHODS = tuple(dict.fromkeys(TABLE_METHODS + BAG_METHODS))
FEW_TEST_ROWS, ENOUGH_TEST_ROWS, MOST_DRAWS = 250, 1_250, 12
"""Where one test row is half a point, a cell is the mean of as many draws as have enough test rows together, or of the
most."""
FEW_GROUPS, DRAWS = 10, 3
"""Where a handful of groups is a matter of luck, it is the mean of so many draws at least."""


@dataclass(frozen=True)
class Cell:
    """One fit: a method, on a draw of a set cut into groups of a size, or on a fold of bags.

    Examples
    --------
    >>> print(Cell("vehicle", "linear", size=64, grouping="similar", seed=0))
    vehicle, 64 similar rows a group, draw 0, linear
    """

    set: str
    method: str
    size: int | None = None
    """Of groups; None for bags."""
    grouping: str | None = None
    seed: int = 0
    """Of the draw; of bags, the fold, and the tens are the draw."""

    def __str__(self) -> str:
        if self.size is None:
            how = f"fold {self.seed}"
        else:
            how = f"{self.size:,} {self.grouping} rows a group, draw {self.seed}"
        return f"{self.set}, {how}, {self.method}"

    @property
    def key(self) -> str:
        """A name for files."""
        return "-".join(["fits", *map(str, asdict(self).values())])

    @property
    def in_bags(self) -> bool:
        """Whether the set is of bags."""
        return self.set in BAGS

    @classmethod
    def of(cls, line: dict[str, Any]) -> Cell:
        """Return the cell of a line of results."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__})


def cells_of(name: str, draw: int = 0) -> list[Cell]:
    """Return the cells of one draw of a set.

    With all labels, neither size nor grouping matters: groups of one.
    """
    if name in BAGS:
        folds = range(FOLDS * draw, FOLDS * (draw + 1))
        return [Cell(name, method, seed=fold) for fold in folds for method in BAG_METHODS]
    cells = [
        Cell(name, method, size, grouping, draw)
        for size in sizes_of(name)
        for grouping in GROUPINGS
        for method in TABLE_METHODS
        if method != "all_labels"
    ]
    return [*cells, Cell(name, "all_labels", 1, "random", draw)]


def draws_of(name: str, size: int | None) -> int:
    """Return how often a cell is drawn.

    Examples
    --------
    >>> draws_of("vehicle", 4), draws_of("diabetes", 64), draws_of("pendigits", 256), draws_of("pendigits", 1024)
    (6, 12, 1, 3)
    """
    if name in BAGS:
        return 1
    rows = SETS[name].rows
    training = n_training_rows(rows)
    tested = rows - training
    by_rows = min(math.ceil(ENOUGH_TEST_ROWS / tested), MOST_DRAWS) if tested < FEW_TEST_ROWS else 1
    by_groups = DRAWS if size is not None and training // size < FEW_GROUPS else 1
    return max(by_rows, by_groups)


def choices() -> dict[str, tuple[str, ...]]:
    """Return the names that cells can be chosen by, for each option."""
    return {"set": tuple(SETS), "size": tuple(map(str, SIZES)), "method": METHODS}


def select(
    sets: Collection[str] = (),
    sizes: Collection[int] = (),
    methods: Collection[str] = (),
    *,
    draws: int | None = None,
    final: bool = False,
) -> list[Cell]:
    """Return cells draw by draw, the longest first: of some sets, sizes and methods, or of all.

    Without names of sets, those of development, and the others only where ``final`` says so; without a number of draws,
    as many as :func:`draws_of` has for each.
    """
    for option, names in (("set", sets), ("size", map(str, sizes)), ("method", methods)):
        for name in names:
            check_choice(option, name, choices()[option])
    chosen = sets or [name for name, declared in SETS.items() if final or declared.development]
    cells = [
        cell
        for draw in range(draws or MOST_DRAWS)
        for name in chosen
        for cell in cells_of(name, draw)
        if draw < (draws or draws_of(name, cell.size))
        if (not sizes or cell.size in sizes) and (not methods or cell.method in methods)
    ]
    return sorted(cells, key=lambda cell: (cell.seed // FOLDS if cell.in_bags else cell.seed, -effort(cell)))


def effort(cell: Cell) -> float:
    """Return about how long a cell takes beside others: the longest come first, so that processes end together."""
    return EFFORTS[cell.method] * (BAG_ROWS if cell.in_bags else n_training_rows(SETS[cell.set].rows))


def skipped() -> dict[str, tuple[int, ...]]:
    """Return the sizes of groups of which too few come out of a table.

    Examples
    --------
    >>> skipped()["vehicle"]
    (256, 1024)
    """
    return {name: left for name in TABLES if (left := tuple(size for size in SIZES if size not in sizes_of(name)))}
