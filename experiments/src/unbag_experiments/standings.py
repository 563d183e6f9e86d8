"""Where UUM stands against the paper: family by family of data, and the cells where it falls short."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from unbag_experiments.comparison import Key, Row

FAMILIES = ("UCI", "multiple instances", "MNIST family", "CIFAR-10", "SVHN", "no warm-up", "training-set sizes")


@dataclass(frozen=True)
class Family:
    """How UUM stands against the paper on the cells of one family of data."""

    name: str
    cells: int
    run: int
    reached: int
    within: int  # those reached are among them


def family(key: Key) -> str:
    """Name the family of data that a cell of the paper belongs to, one of `FAMILIES`.

    Examples
    --------
    >>> family(Key("llp_benchmark", "label_proportions", "fashion-mnist", "uum"))
    'MNIST family'
    """
    table = key.table
    by_table = {"mil": "multiple instances", "similarity_noinit": "no warm-up"}
    if table.endswith("_uci"):
        return "UCI"
    if table.endswith("_sizes"):
        return "training-set sizes"
    return by_table.get(table) or {"cifar10": "CIFAR-10", "svhn": "SVHN"}.get(key.dataset, "MNIST family")


def families(rows: Iterable[Row]) -> list[Family]:
    """Count, family by family, on how many cells UUM reaches the paper's mean, or comes within its deviation.

    Examples
    --------
    >>> families([])
    []
    """
    of: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.key.method == "uum" and row.paper is not None:
            of[family(row.key)].append(row)
    return [
        Family(
            name,
            cells=len(of[name]),
            run=sum(row.standing is not None for row in of[name]),
            reached=sum(row.standing == "reached" for row in of[name]),
            within=sum(row.standing in ("reached", "within") for row in of[name]),
        )
        for name in FAMILIES
        if name in of
    ]


def shortfalls(rows: Iterable[Row]) -> list[Row]:
    """List the cells where UUM is below the paper's mean, the largest gap first.

    Examples
    --------
    >>> shortfalls([])
    []
    """
    short = [row for row in rows if row.key.method == "uum" and row.standing in ("within", "below")]
    return sorted(short, key=lambda row: (row.difference or 0.0, row.key[:3]))
