"""Our results beside the paper's: means, deviations, paired t-tests, and what falls short.

Accuracies are in percent here, as the paper prints them. A mean is compared with the paper's in the two decimals that
both are shown with, so that nobody sees two equal figures of which one is called short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from unbag.experiments.provenance import Line, Provenance, oldest_first, provenance, run_of
from unbag.experiments.results import belongs

if TYPE_CHECKING:
    from unbag.experiments.paper import PaperCell
    from unbag.experiments.plan import Cell

Mark = Literal["better", "worse", "level"]
Standing = Literal["reached", "within", "below"]

SIGNIFICANCE = 0.05
FAMILIES = ("UCI", "multiple instances", "MNIST family", "CIFAR-10", "SVHN", "no warm-up", "training-set sizes")


class Key(NamedTuple):
    """Which figure of which table; the number of groups counts where a table compares such numbers, else it is None."""

    table: str
    problem: str
    dataset: str
    method: str
    protocol: str = "paper"
    n_groups: int | None = None


@dataclass(frozen=True)
class Row:
    """One cell: our trials, the paper's figure, and how UUM compares with this method on the same seeds.

    Examples
    --------
    >>> row = Row(Key("mil", "multiple_instance", "fox", "uum"), {0: 97.0, 1: 99.0})
    >>> row.mean, round(row.std, 3), row.difference
    (98.0, 1.414, None)
    """

    key: Key
    accuracies: Mapping[int, float]  # percent, by seed
    paper: PaperCell | None = None
    mark: Mark | None = None  # UUM against this method; None: fewer than two common seeds, or this is UUM
    runs: tuple[int, ...] = ()  # numbers from 1 of the runs that computed it

    @property
    def mean(self) -> float | None:
        """Mean over trials, to the two decimals that are shown."""
        return round(float(np.mean(list(self.accuracies.values()))), 2) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Standard deviation over trials, n - 1 in the denominator; one trial has none."""
        return float(np.std(list(self.accuracies.values()), ddof=1)) if len(self.accuracies) > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's."""
        return None if self.mean is None or self.paper is None else round(self.mean - self.paper.mean, 2)

    @property
    def standing(self) -> Standing | None:
        """Where our mean lies: at or above the paper's, below it within the paper's deviation, or further below."""
        if self.difference is None or self.paper is None:
            return None
        if self.difference >= 0:
            return "reached"
        return "within" if round(self.difference + (self.paper.std or 0.0), 2) >= 0 else "below"


@dataclass(frozen=True)
class Comparison:
    """All cells in the order in which they are shown, and what they were computed by."""

    rows: tuple[Row, ...]
    provenance: tuple[Provenance, ...]
    replaced: int = 0  # trials for which there was a later one of the same cell and seed
    set_aside: int = 0  # trials of another length, model or number of groups than is planned


@dataclass(frozen=True)
class Family:
    """How UUM stands against the paper on the cells of one family of data."""

    name: str
    cells: int
    run: int
    reached: int
    within: int  # those reached are among them


def paired_test(ours: Mapping[int, float], others: Mapping[int, float]) -> Mark | None:
    """Say whether the first accuracies are significantly better or worse, by a paired t-test on the seeds of both.

    With fewer than two common seeds there is no test, and None comes back. Where all differences are the same the
    t-test has no spread to divide by: equal accuracies are level, and a constant difference is significant, which is
    the limit of the test.

    Examples
    --------
    >>> paired_test({0: 97.1, 1: 97.3, 2: 97.0}, {0: 95.0, 1: 95.4, 2: 95.1})
    'better'
    >>> paired_test({0: 97.1, 1: 97.3}, {1: 97.3, 0: 97.1})
    'level'
    >>> paired_test({0: 97.1}, {0: 95.0}) is None
    True
    """
    seeds = sorted(ours.keys() & others.keys())
    if len(seeds) < 2:
        return None
    first, second = (np.array([values[seed] for seed in seeds]) for values in (ours, others))
    differences = first - second
    if np.ptp(differences) < 1e-9:  # equal but for rounding; one test instance more or less is far above it
        significant = bool(np.abs(differences).max() >= 1e-9)
    else:
        significant = bool(stats.ttest_rel(first, second).pvalue < SIGNIFICANCE)
    if not significant:
        return "level"
    return "better" if differences.mean() > 0 else "worse"


def compare(lines: Iterable[Line], paper: Sequence[PaperCell], planned: Sequence[Cell]) -> Comparison:
    """Put trials beside the paper's figures, one row for each cell that was run, is planned, or is in the paper.

    Parameters
    ----------
    lines
        Finished trials, as ``results/*.jsonl`` holds them. Of two for the same cell and seed the one with the later
        date counts (the later line, if the dates are equal).
    paper
        The paper's figures.
    planned
        All cells that are to be run. A trial of one of them that was trained for another number of epochs, with
        another model or on another number of groups, is set aside.

    Examples
    --------
    >>> compare([], paper=(), planned=())
    Comparison(rows=(), provenance=(), replaced=0, set_aside=0)
    """
    sized = {cell.table for cell in paper if cell.n_groups is not None}

    def key(values: Mapping[str, Any]) -> Key:
        table, problem, dataset, method = (values[name] for name in ("table", "problem", "dataset", "method"))
        n_groups = values["n_groups"] if table in sized else None
        return Key(table, problem, dataset, method, values.get("protocol", "paper"), n_groups)

    figures = {key(vars(cell)): cell for cell in paper}
    cells = {key(vars(cell)): cell for cell in planned}
    known = [*figures, *cells]
    lines = oldest_first(lines)
    fitting = [line for line in lines if key(line) not in cells or belongs(line, cells[key(line)])]
    trials = {(key(line), line["seed"]): line for line in fitting}  # the latest stays
    origins = provenance(trials.values())
    number = {origin.run: place for place, origin in enumerate(origins, start=1)}
    accuracies: dict[Key, dict[int, float]] = defaultdict(dict)
    runs: dict[Key, set[int]] = defaultdict(set)
    for (cell, seed), line in sorted(trials.items(), key=lambda trial: trial[0][1]):
        accuracies[cell][seed] = 100 * line["accuracy"]
        runs[cell].add(number[run_of(line)])

    def row(cell: Key) -> Row:
        ours, uum = accuracies.get(cell, {}), accuracies.get(cell._replace(method="uum"), {})
        mark = None if cell.method == "uum" else paired_test(uum, ours)
        return Row(cell, ours, figures.get(cell), mark, tuple(sorted(runs.get(cell, ()))))

    rows = tuple(row(cell) for cell in _in_order({*known, *accuracies}, known))
    return Comparison(rows, origins, replaced=len(fitting) - len(trials), set_aside=len(lines) - len(fitting))


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


def _in_order(keys: Iterable[Key], known: Sequence[Key]) -> list[Key]:
    """Put keys in the order of those that are known, others behind by name; UUM comes first among the methods."""

    def place(value: str, order: Sequence[str]) -> tuple[int, str]:
        return order.index(value) if value in order else len(order), value

    columns = list(zip(*known, strict=True)) if known else [()] * len(Key._fields)
    tables, problems, datasets, methods, protocols, _ = (list(dict.fromkeys(column)) for column in columns)
    return sorted(
        keys,
        key=lambda key: (
            place(key.table, tables),
            place(key.problem, problems),
            place(key.protocol, protocols),
            place(key.dataset, datasets),
            key.n_groups or 0,
            place(key.method, ["uum", *methods]),
        ),
    )
