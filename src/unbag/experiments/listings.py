"""The tables that the pages of results show, field by field, for every format alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from unbag.experiments.comparison import Row, Selected, families, shortfalls
from unbag.experiments.provenance import Line as Trial
from unbag.experiments.provenance import Provenance
from unbag.experiments.wording import command

TEXT, FIGURE = "text", "figure"
NOT_RUN = "not run"
NONE = "-"
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
}


@dataclass(frozen=True)
class Field:
    """What one field of a table shows, and what it is sorted by; None sorts last."""

    text: str
    sort: float | str | None = None


@dataclass(frozen=True)
class Line:
    """One line of a table; ``strong`` lines stand out, ``faint`` ones step back."""

    fields: tuple[Field, ...]
    strong: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Table:
    """Headings and lines. Figures stand on the right of their columns."""

    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    figures: tuple[bool, ...]


Item = TypeVar("Item")
Column = tuple[str, str, Callable[[Item], Field]]  # heading, TEXT or FIGURE, and what it shows of something


def cell_table(rows: Sequence[Row], titles: Mapping[str, str]) -> Table:
    """List cells; columns that would say nothing anywhere are left out.

    Examples
    --------
    >>> from unbag.experiments.comparison import Key
    >>> table = cell_table([Row(Key("mil", "multiple_instance", "fox", "uum", "ten_fold"), {})], {"uum": "UUM"})
    >>> table.headings
    ('Data set', 'Method', 'Ours', '95 %', 'By groups', 'UUM is', 'UUM is (groups)', 'Trials', 'Run', 'Run it anew')
    >>> [field.text for field in table.lines[0].fields][:3]
    ['fox', 'UUM', 'not run']
    """
    sized = any(row.key.n_groups is not None for row in rows)
    printed = any(row.paper is not None for row in rows)
    columns: list[Column[Row]] = [
        ("Data set", TEXT, lambda row: Field(row.key.dataset, row.key.dataset)),
        ("Groups", FIGURE, lambda row: Field(f"{row.key.n_groups or 0:,}", row.key.n_groups)),
        ("Method", TEXT, lambda row: Field(titles.get(row.key.method, row.key.method), row.key.method)),
        ("Ours", FIGURE, _ours),
        ("95 %", FIGURE, lambda row: _interval(row.labels.interval)),
        ("Paper", FIGURE, _papers),
        ("Difference", FIGURE, _difference),
        ("Against the paper", TEXT, lambda row: _word(row.against_paper, AGAINST_PAPER)),
        ("By groups", FIGURE, lambda row: _figure(row.by.get("groups", Selected()))),
        ("AUC", FIGURE, lambda row: _number(row.labels.auc)),
        ("UUM is", TEXT, lambda row: _word(row.labels.mark, MARKS)),
        ("UUM is (groups)", TEXT, lambda row: _word(row.by.get("groups", Selected()).mark, MARKS)),
        ("UUM is (paper)", TEXT, lambda row: _word(row.papers_mark, MARKS)),
        ("Trials", FIGURE, _trials),
        ("Run", FIGURE, lambda row: Field(", ".join(map(str, row.runs)) or NONE, row.runs[0] if row.runs else None)),
        ("Run it anew", TEXT, lambda row: Field(NONE if row.cell is None else command(row.cell))),
    ]
    unneeded = [
        *["Groups"] * (not sized),
        *["Paper", "Difference", "Against the paper", "UUM is (paper)"] * (not printed),
        *["AUC"] * (not any(row.labels.auc is not None for row in rows)),
    ]
    return _table(
        rows,
        [column for column in columns if column[0] not in unneeded],
        strong=lambda row: row.key.method == "uum",
        faint=lambda row: not row.accuracies,
    )


def summary_table(rows: Iterable[Row]) -> Table:
    """Count where UUM reaches the paper's figures, family by family.

    Examples
    --------
    >>> summary_table([]).headings
    ('Data', 'Cells', 'Run', 'At or above the mean', 'Within the std or above')
    """
    return _table(
        families(rows),
        [
            ("Data", TEXT, lambda family: Field(family.name, family.name)),
            ("Cells", FIGURE, lambda family: Field(str(family.cells), family.cells)),
            ("Run", FIGURE, lambda family: Field(str(family.run), family.run)),
            ("At or above the mean", FIGURE, lambda family: Field(str(family.reached), family.reached)),
            ("Within the std or above", FIGURE, lambda family: Field(str(family.within), family.within)),
        ],
    )


def shortfall_table(rows: Iterable[Row]) -> Table:
    """List where UUM is below the paper's mean.

    Examples
    --------
    >>> shortfall_table([]).headings
    ('Table', 'Data set', 'Ours', 'Paper', 'Difference', 'Within the std')
    """

    def where(row: Row) -> str:
        return row.key.dataset + (f", {row.key.n_groups:,} groups" if row.key.n_groups is not None else "")

    def within(row: Row) -> str:
        if row.paper is not None and row.paper.std is None:
            return "none printed"
        return "yes" if row.standing == "within" else "no"

    return _table(
        shortfalls(rows),
        [
            ("Table", TEXT, lambda row: Field(TABLES.get(row.key.table, row.key.table), row.key.table)),
            ("Data set", TEXT, lambda row: Field(where(row), where(row))),
            ("Ours", FIGURE, _ours),
            ("Paper", FIGURE, _papers),
            ("Difference", FIGURE, _difference),
            ("Within the std", TEXT, lambda row: Field(within(row), within(row))),
        ],
    )


def provenance_table(origins: Sequence[Provenance]) -> Table:
    """List what the trials were computed by.

    Examples
    --------
    >>> provenance_table([]).headings
    ('Run', 'Trials', 'Tables', 'Hardware', 'Versions', 'Commit', 'Date', 'Hours')
    """

    def dates(origin: Provenance) -> str:
        return origin.first if origin.first == origin.last else f"{origin.first} to {origin.last}"

    return _table(
        list(enumerate(origins, start=1)),
        [
            ("Run", FIGURE, lambda item: Field(str(item[0]), item[0])),
            ("Trials", FIGURE, lambda item: Field(str(item[1].trials), item[1].trials)),
            ("Tables", TEXT, lambda item: Field(", ".join(item[1].tables), ", ".join(item[1].tables))),
            ("Hardware", TEXT, lambda item: Field(item[1].run.hardware, item[1].run.hardware)),
            ("Versions", TEXT, lambda item: Field(item[1].run.versions, item[1].run.versions)),
            ("Commit", TEXT, lambda item: Field(item[1].run.commit, item[1].run.commit)),
            ("Date", TEXT, lambda item: Field(dates(item[1]), item[1].first)),
            ("Hours", FIGURE, lambda item: Field(f"{item[1].seconds / 3600:.1f}", item[1].seconds)),
        ],
    )


def cost_table(rows: Sequence[Row]) -> Table:
    """List what each table took, how many of its trials are missing, and about how long these will take.

    Examples
    --------
    >>> cost_table([]).headings
    ('Table', 'Trials', 'Hours', 'Seconds a trial', 'Missing', 'Hours to come')
    """
    of_table: dict[str, list[Row]] = {}
    for row in rows:
        of_table.setdefault(row.key.table, []).append(row)

    def seconds(found: Sequence[Row]) -> float | None:
        """Return the mean of a trial that was not copied."""
        trials = sum(row.trials - row.copied for row in found)
        return sum(row.seconds for row in found) / trials if trials else None

    def missing(found: Sequence[Row]) -> int:
        return sum(max(0, row.planned - row.trials) for row in found)

    def to_come(found: Sequence[Row]) -> float | None:
        """Return what missing trials take, if each takes as long as others of its cell, or else of its table."""
        usual = seconds(found)
        return None if usual is None else sum(missing([row]) * (seconds([row]) or usual) for row in found)

    def hours(value: float | None) -> Field:
        return Field(NONE) if value is None else Field(f"{value / 3600:.2f}", value)

    return _table(
        list(of_table.items()),
        [
            ("Table", TEXT, lambda item: Field(TABLES.get(item[0], item[0]), item[0])),
            ("Trials", FIGURE, lambda item: _count(sum(row.trials for row in item[1]))),
            ("Hours", FIGURE, lambda item: hours(sum(row.seconds for row in item[1]))),
            ("Seconds a trial", FIGURE, lambda item: _number(seconds(item[1]))),
            ("Missing", FIGURE, lambda item: _count(missing(item[1]))),
            ("Hours to come", FIGURE, lambda item: hours(to_come(item[1]))),
        ],
    )


def apart_table(places: Mapping[str, Sequence[Trial]]) -> Table:
    """List trials that do not count, by where they are and by table.

    Examples
    --------
    >>> apart_table({}).headings
    ('Where', 'Table', 'Trials', 'Cells', 'Seeds')
    """
    found: dict[tuple[str, str], list[Trial]] = {}
    for place, lines in places.items():
        for line in lines:
            found.setdefault((place, line["table"]), []).append(line)
    names = ("problem", "dataset", "method", "protocol", "n_groups")

    def cells(lines: Sequence[Trial]) -> int:
        return len({tuple(line.get(name) for name in names) for line in lines})

    def seeds(lines: Sequence[Trial]) -> str:
        return f"{min(line['seed'] for line in lines)} to {max(line['seed'] for line in lines)}"

    return _table(
        sorted(found.items()),
        [
            ("Where", TEXT, lambda item: Field(item[0][0], item[0][0])),
            ("Table", TEXT, lambda item: Field(item[0][1], item[0][1])),
            ("Trials", FIGURE, lambda item: Field(str(len(item[1])), len(item[1]))),
            ("Cells", FIGURE, lambda item: Field(str(cells(item[1])), cells(item[1]))),
            ("Seeds", TEXT, lambda item: Field(seeds(item[1]), seeds(item[1]))),
        ],
    )


def _table(
    items: Iterable[Item],
    columns: Sequence[Column[Item]],
    strong: Callable[[Item], bool] = lambda _: False,
    faint: Callable[[Item], bool] = lambda _: False,
) -> Table:
    return Table(
        headings=tuple(heading for heading, _, _ in columns),
        figures=tuple(kind == FIGURE for _, kind, _ in columns),
        lines=tuple(Line(tuple(show(item) for *_, show in columns), strong(item), faint(item)) for item in items),
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


def _ours(row: Row) -> Field:
    return _figure(row.labels)


def _figure(selected: Selected) -> Field:
    return Field(figure(selected.mean, selected.std), selected.mean)


def _interval(found: tuple[float, float] | None) -> Field:
    return Field(NONE) if found is None else Field(f"{found[0]:.2f} to {found[1]:.2f}", found[0])


def _count(value: int) -> Field:
    return Field(str(value), value)


def _number(value: float | None) -> Field:
    return Field(NONE) if value is None else Field(f"{value:.2f}", value)


def _trials(row: Row) -> Field:
    copied = f", {row.copied} copied" if row.copied else ""
    return Field(f"{row.trials} of {row.planned}{copied}", row.trials)


def _papers(row: Row) -> Field:
    return Field(NONE) if row.paper is None else Field(figure(row.paper.mean, row.paper.std), row.paper.mean)


def _difference(row: Row) -> Field:
    return Field(NONE) if row.difference is None else Field(f"{row.difference:+.2f}", row.difference)


def _word(mark: str | None, words: Mapping[str, str]) -> Field:
    return Field(NONE) if mark is None else Field(words[mark], mark)
