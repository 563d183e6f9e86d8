"""Our results beside the paper's: means, intervals and tests.

Accuracies are in percent here, as the paper prints them. A mean is compared with the paper's in the two decimals that
both are shown with, so that nobody sees two equal figures of which one is called short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from unbag_experiments.baselines import METHODS
from unbag_experiments.plan import SELECTIONS, TABLES, Cell
from unbag_experiments.provenance import Line, Provenance, machine_seconds, oldest_first, provenance, run_of
from unbag_experiments.results import belongs
from unbag_experiments.statistics import Mark, holm, interval, mark, paired_p, welch

if TYPE_CHECKING:
    from unbag_experiments.paper import PaperCell

Standing = Literal["reached", "within", "below"]


class Key(NamedTuple):
    """Which figure of which table; the number of groups counts where a table compares such numbers, else it is None."""

    table: str
    problem: str
    dataset: str
    method: str
    protocol: str = "paper"
    n_groups: int | None = None


@dataclass(frozen=True)
class Selected:
    """The trials of a cell by one selection.

    Examples
    --------
    >>> selected = Selected({1000: 97.0, 1001: 99.0})
    >>> selected.mean, round(selected.std, 3)
    (98.0, 1.414)
    """

    accuracies: Mapping[int, float] = field(default_factory=dict)  # percent, by seed
    overlap: float = 0.0  # test rows for each training row
    mark: Mark | None = None  # UUM against this method; None: too few common seeds, or this is UUM
    auc: float | None = None  # the mean over trials, percent
    calibration: float | None = None  # of the calibration error, likewise

    @property
    def mean(self) -> float | None:
        """Mean over trials, to the two decimals that are shown."""
        return round(float(np.mean(list(self.accuracies.values()))), 2) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Standard deviation over trials, n - 1 in the denominator; one trial has none."""
        return float(np.std(list(self.accuracies.values()), ddof=1)) if len(self.accuracies) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval of the mean."""
        return interval(list(self.accuracies.values()), self.overlap)


@dataclass(frozen=True)
class Row:
    """One cell: our trials by each selection, the paper's figure, and what the trials were computed by.

    What is compared with the paper is chosen by labels, as there.

    Examples
    --------
    >>> row = Row(Key("mil", "multiple_instance", "fox", "uum"), {"labels": Selected({0: 97.0, 1: 99.0})})
    >>> row.mean, row.trials, row.difference
    (98.0, 2, None)
    """

    key: Key
    by: Mapping[str, Selected] = field(default_factory=dict)
    paper: PaperCell | None = None
    planned: int = 0  # trials
    runs: tuple[int, ...] = ()  # numbers from 1 of the runs that computed it
    copied: int = 0  # trials taken from another table that asks for the same
    seconds: float = 0.0  # of all other trials
    machine_seconds: float = 0.0  # of these, where trials that ran at the same time share a machine
    cell: Cell | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether it goes beyond the paper's protocol."""
        return self.cell is not None and self.cell.part.is_beyond

    @property
    def labels(self) -> Selected:
        """The trials as labels choose them."""
        return self.by.get("labels", Selected())

    @property
    def accuracies(self) -> Mapping[int, float]:
        """Accuracies in percent as labels choose, by seed."""
        return self.labels.accuracies

    @property
    def trials(self) -> int:
        """How many there are."""
        return len(self.accuracies)

    @property
    def mean(self) -> float | None:
        """Mean over trials as labels choose."""
        return self.labels.mean

    @property
    def std(self) -> float | None:
        """Standard deviation over trials as labels choose."""
        return self.labels.std

    @property
    def against_paper(self) -> Mark | None:
        """Whether our mean is significantly above or below the paper's."""
        return None if self.paper is None else welch(list(self.accuracies.values()), self.paper.mean, self.paper.std)

    @property
    def papers_mark(self) -> Mark | None:
        """The paper's mark; it leaves level ones blank, and tests nothing where it prints no deviations."""
        if self.paper is None or self.paper.std is None or self.key.method == "uum":
            return None
        return self.paper.uum_significantly or "level"

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
    set_aside: tuple[Line, ...] = ()  # trials of another plan, of changed code, or with seeds that are not planned


def compare(lines: Iterable[Line], paper: Sequence[PaperCell], planned: Sequence[Cell]) -> Comparison:
    """Put trials beside the paper's figures, one row for each cell that was run, is planned, or is in the paper.

    Examples
    --------
    >>> compare([], paper=(), planned=())
    Comparison(rows=(), provenance=(), replaced=0, set_aside=())
    """
    sized = {cell.table for cell in paper if cell.n_groups is not None}

    def key(values: Mapping[str, Any]) -> Key:
        table, problem, dataset, method = (values[name] for name in ("table", "problem", "dataset", "method"))
        n_groups = values["n_groups"] if table in sized else None
        return Key(table, problem, dataset, method, values.get("protocol", "paper"), n_groups)

    figures = {key(vars(cell)): cell for cell in paper}
    cells = {key(vars(cell)): cell for cell in planned}
    known = [*figures, *cells]
    fitting: list[Line] = []
    set_aside: list[Line] = []
    for line in oldest_first(lines):
        cell = cells.get(key(line)) or _cell_of(line)
        counts = cell is not None and line["seed"] in cell.seeds() and belongs(line, cell)
        if counts and cell is not None:
            cells.setdefault(key(line), cell)
        (fitting if counts else set_aside).append(line)
    latest = {(key(line), line["seed"]): line for line in fitting}  # the last stays
    origins = provenance(latest.values())
    number = {origin.run: place for place, origin in enumerate(origins, start=1)}
    computed = sorted((name for name, line in latest.items() if "copied_from" not in line), key=repr)
    machine: dict[Key, float] = defaultdict(float)
    for (name, _), share in zip(computed, machine_seconds([latest[one] for one in computed]), strict=True):
        machine[name] += share
    of_cell: dict[Key, list[Line]] = defaultdict(list)
    for (name, _), line in sorted(latest.items(), key=lambda trial: trial[0][1]):
        of_cell[name].append(line)

    def row(name: Key) -> Row:
        trials = of_cell.get(name, [])
        return Row(
            name,
            {selection: _selected(trials, selection) for selection in SELECTIONS if trials},
            figures.get(name),
            planned=len(cells[name].seeds()) if name in cells else 0,
            runs=tuple(sorted({number[run_of(line)] for line in trials})),
            copied=sum("copied_from" in line for line in trials),
            seconds=sum(line.get("seconds") or 0.0 for line in trials if "copied_from" not in line),
            machine_seconds=machine[name],
            cell=cells.get(name),
        )

    rows = {name: row(name) for name in _in_order({*known, *cells}, known)}
    return Comparison(
        tuple(_marked(rows).values()), origins, replaced=len(fitting) - len(latest), set_aside=tuple(set_aside)
    )


def _cell_of(line: Line) -> Cell | None:
    """Return the cell of a data set that is new to a table; None where the plan knows nothing like it."""
    if line["table"] not in TABLES or line["method"] not in METHODS:
        return None
    cell = Cell(*(line[name] for name in ("table", "problem", "dataset", "method", "protocol")))
    try:
        return replace(cell, n_groups=line["n_groups"]) if any(cell.part.n_groups) else cell
    except ValueError:
        return None


def _selected(lines: Sequence[Line], selection: str) -> Selected:
    def mean(measure: str) -> float | None:
        values = [line["by"][selection].get(measure) for line in lines]
        known = [100 * value for value in values if value is not None]
        return round(float(np.mean(known)), 2) if known else None

    return Selected(
        {line["seed"]: 100 * line["by"][selection]["accuracy"] for line in lines},
        overlap=float(np.mean([line["rows"]["test"] / line["rows"]["train"] for line in lines])),
        auc=mean("auc"),
        calibration=mean("calibration"),
    )


def _marked(rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Compare UUM with every other method on the seeds of both, with Holm's correction over the tests of a table."""
    marked = dict(rows)
    for selection in SELECTIONS:
        tests: dict[str, dict[Key, tuple[float, float]]] = defaultdict(dict)
        for name, row in rows.items():
            uum = rows.get(name._replace(method="uum"))
            if name.method == "uum" or uum is None or selection not in row.by or selection not in uum.by:
                continue
            p_value = paired_p(uum.by[selection].accuracies, row.by[selection].accuracies, row.by[selection].overlap)
            if p_value is not None:
                tests[name.table][name] = p_value
        for of_table in tests.values():
            corrected = holm([p for _, p in of_table.values()])
            for (name, (difference, _)), p in zip(of_table.items(), corrected, strict=True):
                row = marked[name]
                own = replace(row.by[selection], mark=mark(difference, p))
                marked[name] = replace(row, by={**row.by, selection: own})
    return marked


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
