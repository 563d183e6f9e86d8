"""Tables of the pages of results, cell by cell, for every format alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from unbag._utils.pages.tables import NONE, Cell, Table
from unbag_experiments.cell_text import command
from unbag_experiments.comparison import Row, Selected
from unbag_experiments.provenance import Line as Trial
from unbag_experiments.provenance import Provenance
from unbag_experiments.standings import families, shortfalls

TEXT, FIGURE = "text", "figure"
NOT_RUN = "not run"
MARKS = {"better": "• better", "worse": "◦ worse", "level": "level"}
AGAINST_PAPER = {"better": "above", "worse": "below", "level": "level"}

TABLES = {
    "similarity_benchmark": "Pairs, image data",
    "similarity_uci": "Pairs, UCI data",
    "triplet_benchmark": "Triplets, image data",
    "triplet_uci": "Triplets, UCI data",
    "llp_benchmark": "Label proportions, image data",
    "llp_uci": "Label proportions, UCI data",
    "mil": "Multiple instances",
    "similarity_noinit": "Pairs without warm-up",
    "similarity_sizes": "Pairs, by number of groups",
    "triplet_sizes": "Triplets, by number of groups",
    "ordinal": "Ordered classes (our own table)",
    "llp_groups_uci": "Beyond the paper: larger and sorted groups, UCI data",
    "bags_of_images": "Beyond the paper: instances inside bags",
    "llp_groups_images": "Beyond the paper: larger and sorted groups, image data",
}


Item = TypeVar("Item")
Column = tuple[str, str, Callable[[Item], Cell]]  # heading, TEXT or FIGURE, and what it shows of something


def cell_table(caption: str, rows: Sequence[Row], titles: Mapping[str, str]) -> Table:
    """List cells; columns that would say nothing anywhere are left out.

    Examples
    --------
    >>> from unbag_experiments.comparison import Key
    >>> table = cell_table("Bags", [Row(Key("mil", "multiple_instance", "fox", "uum", "ten_fold"), {})], {"uum": "UUM"})
    >>> table.columns
    ('Data set', 'Method', 'Ours', '95 %', 'By groups', 'UUM is', 'UUM is (groups)', 'Trials', 'Run', 'Run it anew')
    >>> [cell.text for cell in table.rows[0]][:3]
    ['fox', 'UUM', 'not run']
    """
    sized = any(row.key.n_groups is not None for row in rows)
    printed = any(row.paper is not None for row in rows)
    columns: list[Column[Row]] = [
        ("Data set", TEXT, lambda row: Cell(row.key.dataset)),
        ("Groups", FIGURE, lambda row: Cell(f"{row.key.n_groups or 0:,}", row.key.n_groups)),
        ("Method", TEXT, lambda row: Cell(titles.get(row.key.method, row.key.method))),
        ("Ours", FIGURE, _ours),
        ("95 %", FIGURE, lambda row: _interval(row.labels.interval)),
        ("Paper", FIGURE, _papers),
        ("Difference", FIGURE, _difference),
        ("Against the paper", TEXT, lambda row: _word(row.against_paper, AGAINST_PAPER)),
        ("By groups", FIGURE, lambda row: _figure(row.by.get("groups", Selected()))),
        ("AUC", FIGURE, lambda row: _number(row.labels.auc)),
        ("ECE", FIGURE, lambda row: _number(row.labels.calibration)),
        ("UUM is", TEXT, lambda row: _word(row.labels.mark, MARKS)),
        ("UUM is (groups)", TEXT, lambda row: _word(row.by.get("groups", Selected()).mark, MARKS)),
        ("UUM is (paper)", TEXT, lambda row: _word(row.papers_mark, MARKS)),
        ("Trials", FIGURE, _trials),
        ("Run", FIGURE, lambda row: Cell(", ".join(map(str, row.runs)) or NONE, row.runs[0] if row.runs else None)),
        ("Run it anew", TEXT, lambda row: Cell(NONE if row.cell is None else command(row.cell))),
    ]
    unneeded = [
        *["Groups"] * (not sized),
        *["Paper", "Difference", "Against the paper", "UUM is (paper)"] * (not printed),
        *["AUC"] * (not any(row.labels.auc is not None for row in rows)),
        *["ECE"] * (not any(row.labels.calibration is not None for row in rows)),
    ]
    return _table(
        caption,
        rows,
        [column for column in columns if column[0] not in unneeded],
        emphasis=lambda row: "strong" if row.key.method == "uum" else None if row.accuracies else "faint",
    )


def summary_table(rows: Iterable[Row]) -> Table:
    """Count where UUM reaches the paper's figures, family by family."""
    return _table(
        "Number of cells",
        families(rows),
        [
            ("Data", TEXT, lambda family: Cell(family.name)),
            ("Cells", FIGURE, lambda family: _count(family.cells)),
            ("Run", FIGURE, lambda family: _count(family.run)),
            ("At or above the mean", FIGURE, lambda family: _count(family.reached)),
            ("Within the std or above", FIGURE, lambda family: _count(family.within)),
        ],
    )


def shortfall_table(rows: Iterable[Row]) -> Table:
    """List where UUM is below the paper's mean."""

    def where(row: Row) -> str:
        return row.key.dataset + (f", {row.key.n_groups:,} groups" if row.key.n_groups is not None else "")

    def within(row: Row) -> str:
        if row.paper is not None and row.paper.std is None:
            return "none printed"
        return "yes" if row.standing == "within" else "no"

    return _table(
        "Below the paper's mean",
        shortfalls(rows),
        [
            ("Table", TEXT, lambda row: Cell(TABLES.get(row.key.table, row.key.table))),
            ("Data set", TEXT, lambda row: Cell(where(row))),
            ("Ours", FIGURE, _ours),
            ("Paper", FIGURE, _papers),
            ("Difference", FIGURE, _difference),
            ("Within the std", TEXT, lambda row: Cell(within(row))),
        ],
    )


def provenance_table(origins: Sequence[Provenance]) -> Table:
    """List what the trials were computed by."""

    def dates(origin: Provenance) -> str:
        return origin.first if origin.first == origin.last else f"{origin.first} to {origin.last}"

    return _table(
        "Runs",
        list(enumerate(origins, start=1)),
        [
            ("Run", FIGURE, lambda item: _count(item[0])),
            ("Trials", FIGURE, lambda item: _count(item[1].trials)),
            ("Tables", TEXT, lambda item: Cell(", ".join(item[1].tables))),
            ("Hardware", TEXT, lambda item: Cell(item[1].run.hardware)),
            ("Versions", TEXT, lambda item: Cell(item[1].run.versions)),
            ("Commit", TEXT, lambda item: Cell(item[1].run.commit)),
            ("Date", TEXT, lambda item: Cell(dates(item[1]))),
            ("Hours", FIGURE, lambda item: Cell(f"{item[1].seconds / 3600:.1f}", item[1].seconds)),
        ],
    )


def cost_table(rows: Sequence[Row]) -> Table:
    """List what each table took, how many of its trials are missing, and about how long these will take."""
    of_table: dict[str, list[Row]] = {}
    for row in rows:
        of_table.setdefault(row.key.table, []).append(row)

    def seconds(some: Sequence[Row]) -> float | None:
        """Return the mean of a trial that was not copied."""
        trials = sum(row.trials - row.copied for row in some)
        return sum(row.seconds for row in some) / trials if trials else None

    def missing(some: Sequence[Row]) -> int:
        return sum(max(0, row.planned - row.trials) for row in some)

    def to_come(some: Sequence[Row]) -> float | None:
        """Return what missing trials take, if each takes as long as the likest that were run."""
        of_rows = [(missing([row]), _first(map(seconds, alike(row, some)))) for row in some if missing([row])]
        return None if any(own is None for _, own in of_rows) else sum(n * (own or 0.0) for n, own in of_rows)

    def alike(row: Row, of_its_table: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """Yield the cell itself, those of its problem, data set and method, of its problem and data set, its table."""
        same_data = [one for one in rows if (one.key.problem, one.key.dataset) == (row.key.problem, row.key.dataset)]
        yield from ([row], [one for one in same_data if one.key.method == row.key.method], same_data, of_its_table)

    def hours(value: float | None) -> Cell:
        return Cell(NONE) if value is None else Cell(f"{value / 3600:.2f}", value)

    return _table(
        "Time by table",
        list(of_table.items()),
        [
            ("Table", TEXT, lambda item: Cell(TABLES.get(item[0], item[0]))),
            ("Trials", FIGURE, lambda item: _count(sum(row.trials for row in item[1]))),
            ("Minutes of the machine", FIGURE, lambda item: _number(sum(row.machine_seconds for row in item[1]) / 60)),
            ("Hours of processes", FIGURE, lambda item: hours(sum(row.seconds for row in item[1]))),
            ("Seconds a trial", FIGURE, lambda item: _number(seconds(item[1]))),
            ("Missing", FIGURE, lambda item: _count(missing(item[1]))),
            ("Hours to come", FIGURE, lambda item: hours(to_come(item[1]))),
        ],
    )


def _first(values: Iterable[float | None]) -> float | None:
    return next((one for one in values if one is not None), None)


def apart_table(places: Mapping[str, Sequence[Trial]]) -> Table:
    """List trials that do not count, by where they are and by table."""
    trials: dict[tuple[str, str], list[Trial]] = {}
    for place, lines in places.items():
        for line in lines:
            trials.setdefault((place, line["table"]), []).append(line)
    names = ("problem", "dataset", "method", "protocol", "n_groups")

    def cells(lines: Sequence[Trial]) -> int:
        return len({tuple(line.get(name) for name in names) for line in lines})

    def seeds(lines: Sequence[Trial]) -> str:
        return f"{min(line['seed'] for line in lines)} to {max(line['seed'] for line in lines)}"

    return _table(
        "Trials that do not count",
        sorted(trials.items()),
        [
            ("Where", TEXT, lambda item: Cell(item[0][0])),
            ("Table", TEXT, lambda item: Cell(item[0][1])),
            ("Trials", FIGURE, lambda item: _count(len(item[1]))),
            ("Cells", FIGURE, lambda item: _count(cells(item[1]))),
            ("Seeds", TEXT, lambda item: Cell(seeds(item[1]))),
        ],
    )


def _table(
    caption: str,
    items: Iterable[Item],
    columns: Sequence[Column[Item]],
    emphasis: Callable[[Item], Literal["strong", "faint"] | None] = lambda _: None,
) -> Table:
    items = list(items)
    return Table(
        caption,
        columns=tuple(heading for heading, _, _ in columns),
        rows=[[show(item) for *_, show in columns] for item in items],
        numeric=[heading for heading, kind, _ in columns if kind == FIGURE],
        emphasis={place: how for place, item in enumerate(items) if (how := emphasis(item)) is not None},
    )


def figure(mean: float | None, std: float | None) -> str:
    """Write a mean and its standard deviation as the paper does.

    Examples
    --------
    >>> figure(98.456, 0.1), figure(98.456, None), figure(None, None)
    ('98.46 ± 0.10', '98.46', 'not run')
    """
    if mean is None:
        return NOT_RUN
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _ours(row: Row) -> Cell:
    return _figure(row.labels)


def _figure(selected: Selected) -> Cell:
    return Cell(figure(selected.mean, selected.std), selected.mean)


def _interval(bounds: tuple[float, float] | None) -> Cell:
    return Cell(NONE) if bounds is None else Cell(f"{bounds[0]:.2f} to {bounds[1]:.2f}", bounds[0])


def _count(value: int) -> Cell:
    return Cell(str(value), value)


def _number(value: float | None) -> Cell:
    return Cell(NONE) if value is None else Cell(f"{value:.2f}", value)


def _trials(row: Row) -> Cell:
    copied = f", {row.copied} copied" if row.copied else ""
    return Cell(f"{row.trials} of {row.planned}{copied}", row.trials)


def _papers(row: Row) -> Cell:
    return Cell(NONE) if row.paper is None else Cell(figure(row.paper.mean, row.paper.std), row.paper.mean)


def _difference(row: Row) -> Cell:
    return Cell(NONE) if row.difference is None else Cell(f"{row.difference:+.2f}", row.difference)


def _word(mark: str | None, words: Mapping[str, str]) -> Cell:
    return Cell(NONE) if mark is None else Cell(words[mark])
