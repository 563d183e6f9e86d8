"""Elements of a report as data: sections, plots and tables, and numbers as text."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unbag._utils.pages.tables import NONE, Cell, Table
from unbag.aggregates import Wording


@dataclass(frozen=True)
class Plot:
    """A plot: the name of the function of :mod:`unbag.report.page` that draws it, and its arguments."""

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
    collapsed: bool = False
    """Whether the content is shown only on request."""


def make_table(caption: str, items: Sequence[Mapping[str, Any]], *columns: str) -> Table:
    """Return a table with a row for each item.

    A column is written as ``heading: key``, or as a key that is also the heading; ``outer.inner`` is the key of a
    nested value. ``key#`` is shown as a number, ``key%`` as a percentage, an estimate with its interval, ``key#|``
    and ``key%|`` also as a bar, others as text.
    """
    keys = [column.rpartition(": ")[2] for column in columns]
    headings = [column.rpartition(": ")[0] or column.rstrip("#%|") for column in columns]
    numeric = [heading for heading, key in zip(headings, keys, strict=True) if key.rstrip("|")[-1] in "#%"]
    return Table(caption, headings, list(zip(*(_cells(items, key) for key in keys), strict=True)), numeric)


def make_facts(caption: str, entries: Mapping[str, Any]) -> Table:
    """Return a table of names and values."""
    return make_table(caption, [{"name": str(n), "value": v} for n, v in entries.items()], "name", "value")


def _cells(items: Sequence[Mapping[str, Any]], column: str) -> list[Cell]:
    """Return a column of a table.

    Examples
    --------
    >>> _cells([{"town": {"share": 0.5}}], "town.share%|"), _cells([{"town": ["Ulm", "Bonn"]}], "town")
    ([Cell(text='50.0 %', value=0.5, bar=50)], [Cell(text='Ulm, Bonn', value=None, bar=None)])
    """
    values: list[Any] = list(items)
    for key in column.rstrip("#%|").split("."):
        values = [None if value is None else value[key] for value in values]
    if column.rstrip("|")[-1] not in "#%":
        return [Cell(_as_text(value)) for value in values]
    form = percent if "%" in column else number
    texts = [NONE if v is None else interval(v, form) if isinstance(v, Mapping) else form(v) for v in values]
    values = [value["value"] if isinstance(value, Mapping) else value for value in values]
    longest = 1.0 if "%" in column else max((value for value in values if value), default=1.0)
    bars = [round(100 * max(value or 0, 0) / longest) if "|" in column else None for value in values]
    return [Cell(*cell) for cell in zip(texts, values, bars, strict=True)]


def _as_text(value: Any) -> str:
    if value is None or value in ("", []):
        return NONE
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def percent(share: float) -> str:
    """Format a share, such as 0.5 as "50.0 %"."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """Format a number with about three digits and at most three decimals.

    Examples
    --------
    >>> number(1.23456), number(0.00012), number(120000), number(-2)
    ('1.23', '0.000', '120,000', '\N{MINUS SIGN}2')
    """
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{round(value, digits) + 0.0:,.{digits}f}"  # adding zero makes -0.0 positive
    return text.replace("-", "\N{MINUS SIGN}")


def interval(estimate: Mapping[str, float], form: Callable[[float], str]) -> str:
    """Format an estimate with its interval, such as "62.0 % (50.0 % to 71.2 %)"."""
    return f"{form(estimate['value'])} ({form(estimate['low'])} to {form(estimate['high'])})"


def count(n: int, singular: str, plural: str | None = None) -> str:
    """Format a number of things, such as "1,200 rows"."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def wording(described: Mapping[str, Any]) -> Wording:
    """Return the words for the groups of a set in a summary."""
    return Wording(**described["wording"])
