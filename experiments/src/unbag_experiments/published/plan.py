"""Which cells the table of published counts has. The plan was frozen before sets but that of development were run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from unbag._utils.checks import check_choice

SETS = {"pendigits": True, "usps": False, "optdigits": False, "msplice": False}
"""Tables, and whether they were looked at before the plan was frozen. Digits are odd or even, msplice has 3 classes."""
GROUPS = ((16, "similar"), (64, "similar"), (256, "similar"), (64, "random"))
"""Sizes of groups and how rows are chosen for them, as in the table of default fits."""
PLACES = tuple((name, *how) for name in SETS for how in GROUPS if (name, how[1]) != ("msplice", "random"))
"""Three classes take so long that they are left out of the check with random groups."""
EPSILONS = (0.1, 0.5, 1.0, 2.0)
SENSITIVITY = 2
"""Who is in a group can be seen; a person who moves to another class changes two counts by one."""
PUBLISHED = ("exact", "rounded to 5", "suppressed below 5", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS))
METHODS = ("likelihood", "repair", "match")
DRAWS = 5
"""Of training rows, groups and noise."""


@dataclass(frozen=True)
class Cell:
    """One fit: a way to learn from the counts of a draw of groups that were published in some way.

    Examples
    --------
    >>> print(Cell("usps", "repair", 64, "similar", "epsilon 0.5", seed=1))
    usps, 64 similar rows a group, epsilon 0.5, draw 1, repair
    """

    set: str
    method: str
    size: int
    grouping: str
    published: str
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.set}, {self.size} {self.grouping} rows a group, {self.published}, draw {self.seed}, {self.method}"
        )

    @property
    def key(self) -> str:
        """A name for files."""
        return "-".join(["published", *map(str, asdict(self).values())]).replace(" ", "_")

    @classmethod
    def of(cls, line: dict[str, Any]) -> Cell:
        """Return the cell of a line of results."""
        return cls(**{name: line[name] for name in cls.__dataclass_fields__})


def choices() -> dict[str, tuple[str, ...]]:
    """Return the names that cells can be chosen by, for each option."""
    sizes = dict.fromkeys(str(size) for size, _ in GROUPS)
    return {"set": tuple(SETS), "size": tuple(sizes), "method": METHODS}


def select(
    sets: Collection[str] = (),
    sizes: Collection[int] = (),
    methods: Collection[str] = (),
    *,
    draws: int = DRAWS,
    final: bool = False,
) -> list[Cell]:
    """Return cells draw by draw: of some sets, sizes and methods, or of all.

    Without names of sets, that of development, and the others only where ``final`` says so.
    """
    for name, given in (("set", sets), ("size", sizes), ("method", methods)):
        for one in given:
            check_choice(name, str(one), choices()[name])
    return [
        Cell(name, method, size, grouping, published, draw)
        for draw in range(draws)
        for name, size, grouping in PLACES
        if (name in sets if sets else final or SETS[name]) and (not sizes or size in sizes)
        for published in PUBLISHED
        for method in methods or METHODS
    ]
