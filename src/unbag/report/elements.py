"""Elements of a report as data: sections, plots and tables, and numbers as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unbag._utils.pages.tables import NONE, Cell, Table
from unbag.aggregates import Wording


@dataclass(frozen=True)
class Plot:
    """A plot: the function of :mod:`unbag.report.plots` that draws it, and its arguments."""

    kind: str
    description: str
    """Text alternative."""
    caption: str
    arguments: dict[str, Any]


@dataclass
class Section:
    """A part of the page with a heading."""

    id: str
    title: str
    text: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def add_plot(self, kind: str, description: str, caption: str, **arguments: Any) -> None:
        """Add a plot with the arguments of the function that draws it."""
        self.plots.append(Plot(kind, description, caption, arguments))

    def add_table(self, caption: str, items: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
        """Add a table with a row for each item.

        Parameters
        ----------
        caption, items
            Caption of the table, and dicts of values.
        columns
            From headings to keys, ``outer.inner`` for a nested value; ``key#`` is shown as a number, ``key%`` as a
            percentage, others as text.
        """
        rows = [[_cell(item, column) for column in columns.values()] for item in items]
        numeric = [heading for heading, column in columns.items() if column[-1] in "#%"]
        self.tables.append(Table(caption, list(columns), rows, numeric))

    def add_facts(self, caption: str, entries: Mapping[str, Any]) -> None:
        """Add a table of names and values."""
        items = [{"name": str(name), "value": value} for name, value in entries.items()]
        self.add_table(caption, items, {"name": "name", "value": "value"})


def _cell(item: Any, column: str) -> Cell:
    """Return the value of a column as an entry of a table.

    Examples
    --------
    >>> _cell({"town": {"share": 0.5}}, "town.share%"), _cell({"town": ["Ulm", "Bonn"]}, "town")
    (Cell(text='50.0 %', value=0.5), Cell(text='Ulm, Bonn', value=None))
    """
    value = item
    for key in column.rstrip("#%").split("."):
        value = None if value is None else value[key]
    if value is None or value in ("", []):
        return Cell(NONE)
    if column[-1] in "#%":
        return Cell(number(value) if column[-1] == "#" else f"{100 * value:.1f} %", value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return Cell(", ".join(value))
    return Cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def percent(share: float | None) -> str:
    """Format a share.

    Examples
    --------
    >>> percent(0.5), percent(0.98765), percent(None)
    ('50 %', '98.8 %', 'unknown')
    """
    return "unknown" if share is None else f"{round(100 * share, 1):g} %"


def number(value: float) -> str:
    r"""Format a number with about three digits and at most three decimals.

    Examples
    --------
    >>> number(1.23456), number(0.00012), number(120000), number(-2)
    ('1.23', '0.000', '120,000', '\N{MINUS SIGN}2')
    """
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{round(value, digits) + 0.0:,.{digits}f}"  # adding zero makes -0.0 positive
    return text.replace("-", "\N{MINUS SIGN}")


def count(n: int, singular: str, plural: str | None = None) -> str:
    """Format a number of things.

    Examples
    --------
    >>> count(1, "row"), count(1200, "row"), count(2, "class", "classes")
    ('1 row', '1,200 rows', '2 classes')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def listed(words: Sequence[str], most: int) -> str:
    """Join words, and count those beyond a maximum.

    Examples
    --------
    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most:,} more"


def wording(described: Mapping[str, Any]) -> Wording:
    """Return the words for the groups of a set in a summary."""
    return Wording(**described["wording"])
