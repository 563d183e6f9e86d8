"""Tables of the pages of results, cell by cell, for every format alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from unbag._utils.pages.tables import NONE, Cell, Table
from unbag_experiments.cell_text import command
from unbag_experiments.comparison import Row, Selected
from unbag_experiments.provenance import Provenance
from unbag_experiments.standings import Gap
from unbag_experiments.statistics import PAPER_TRIALS

TEXT, FIGURE = "text", "figure"
NOT_RUN = "not run"
SIGNS = {"better": " •", "worse": " ◦"}
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
    ('Data set', 'Method', 'Ours', '95 %', 'By groups', 'UUM is', 'UUM is (groups)', 'Trials', 'Run', 'Command')
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
        ("Command", TEXT, lambda row: Cell(NONE if row.cell is None else command(row.cell))),
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


def wide_table(rows: Sequence[Row], titles: Mapping[str, str]) -> Table:
    """Show accuracies with a row per data set and a column per method, for cells that were run."""
    by_line: dict[tuple[str, int | None], dict[str, Row]] = {}
    for row in rows:
        if row.trials:
            by_line.setdefault((row.key.dataset, row.key.n_groups), {})[row.key.method] = row

    def show(row: Row | None, selection: str) -> Cell:
        if row is None or selection not in row.by:
            return Cell(NONE)
        selected = row.by[selection]
        printed = f" ({row.paper.mean:.2f})" if row.paper is not None and selection == "labels" else ""
        few = f", {row.trials} of {row.planned}" if row.trials < row.planned else ""
        return Cell(f"{figure(selected.mean, selected.std)}{printed}{few}{SIGNS.get(selected.mark or '', '')}")

    def column(method: str, selection: str, heading: str) -> Column[tuple[tuple[str, int | None], dict[str, Row]]]:
        return heading, FIGURE, lambda item: show(item[1].get(method), selection)

    methods = dict.fromkeys(row.key.method for row in rows if row.trials)
    return _table(
        "Accuracy in percent",
        by_line.items(),
        [
            ("Data set", TEXT, lambda item: Cell(item[0][0] + (f", {item[0][1]:,} groups" if item[0][1] else ""))),
            *(column(method, "labels", titles.get(method, method)) for method in methods),
            column("uum", "groups", "UUM, no labels"),
        ],
    )


def likelihood_table(tables: Mapping[str, Gap]) -> Table:
    """Compare UUM with the log-likelihood, table by table."""
    return _table(
        "UUM minus log-likelihood, in points",
        tables.items(),
        [
            ("Table", TEXT, lambda item: Cell(TABLES.get(item[0], item[0]))),
            ("Cells", FIGURE, lambda item: _count(len(item[1].differences))),
            ("Mean", FIGURE, lambda item: Cell(f"{item[1].mean:+.2f}")),
            ("95 % interval", FIGURE, lambda item: _interval(item[1].interval)),
            ("Lowest", FIGURE, lambda item: Cell(f"{min(item[1].differences):+.2f}")),
            ("Highest", FIGURE, lambda item: Cell(f"{max(item[1].differences):+.2f}")),
            ("Significant", FIGURE, lambda item: _count(item[1].significant)),
            ("Detectable", FIGURE, lambda item: Cell(f"{item[1].detectable:.2f}")),
        ],
    )


def method_table(rows: Iterable[Row], titles: Mapping[str, str]) -> Table:
    """Count for each method where its mean reaches the paper's."""
    of_method: dict[str, list[Row]] = {}
    for row in rows:
        if row.standing is not None:
            of_method.setdefault(row.key.method, []).append(row)
    return _table(
        "Our means against the paper's",
        of_method.items(),
        [
            ("Method", TEXT, lambda item: Cell(titles.get(item[0], item[0]))),
            ("Cells run", FIGURE, lambda item: _count(len(item[1]))),
            ("At or above the mean", FIGURE, lambda item: _count(sum(row.standing == "reached" for row in item[1]))),
            ("Below, within the std", FIGURE, lambda item: _count(sum(row.standing == "within" for row in item[1]))),
            ("Further below", FIGURE, lambda item: _count(sum(row.standing == "below" for row in item[1]))),
            ("Fewer than 5 trials", FIGURE, lambda item: _count(sum(row.trials < PAPER_TRIALS for row in item[1]))),
            ("Copied", FIGURE, lambda item: _count(sum(row.trials == row.copied for row in item[1]))),
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
    """List the training time of each table and the number of its trials that were not run."""
    of_table: dict[str, list[Row]] = {}
    for row in rows:
        of_table.setdefault(row.key.table, []).append(row)

    def seconds(some: Sequence[Row]) -> float | None:
        """Return the mean time of a trial that was not copied."""
        trials = sum(row.trials - row.copied for row in some)
        return sum(row.seconds for row in some) / trials if trials else None

    return _table(
        "Time by table",
        list(of_table.items()),
        [
            ("Table", TEXT, lambda item: Cell(TABLES.get(item[0], item[0]))),
            ("Trials", FIGURE, lambda item: _count(sum(row.trials for row in item[1]))),
            ("Machine minutes", FIGURE, lambda item: _number(sum(row.machine_seconds for row in item[1]) / 60)),
            ("Process hours", FIGURE, lambda item: _number(sum(row.seconds for row in item[1]) / 3600)),
            ("Seconds per trial", FIGURE, lambda item: _number(seconds(item[1]))),
            ("Not run", FIGURE, lambda item: _count(sum(max(0, row.planned - row.trials) for row in item[1]))),
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
