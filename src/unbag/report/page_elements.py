"""Elements of a report: sections, pictures, and numbers as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from unbag._utils.pages import describe
from unbag._utils.pages.tables import Cell, Table

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Picture:
    """A plot, what it shows, and what is to be seen on it."""

    svg: str
    shows: str
    caption: str

    @property
    def markup(self) -> Markup:
        """The plot with its text alternative; everything in it was escaped when it was drawn."""
        return Markup(describe(self.svg, self.shows))


@dataclass
class Section:
    """A part of the page with a heading."""

    id: str
    title: str
    text: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def percent(share: float | None) -> str:
    """Write a share.

    Examples
    --------
    >>> percent(0.5), percent(0.98765), percent(None)
    ('50 %', '98.8 %', 'unknown')
    """
    return "unknown" if share is None else f"{round(100 * share, 1):g} %"


def number(value: float | None) -> str:
    """Write a number with about three digits, none of them beyond the thousandths.

    Examples
    --------
    >>> number(1.23456), number(0.00012), number(120000), number(None)
    ('1.23', '0.000', '120,000', 'none')
    """
    if value is None:
        return "none"
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", MINUS)  # adding zero makes -0.0 a plain one


def count(n: int, what: str, many: str | None = None) -> str:
    """Write how many of something there are.

    Examples
    --------
    >>> count(1, "row"), count(1200, "row"), count(2, "class", "classes")
    ('1 row', '1,200 rows', '2 classes')
    """
    return f"{n:,} {what if n == 1 else many or what + 's'}"


def listed(words: Sequence[str], most: int = 12) -> str:
    """Write a list of words, and how many more there are of a long one.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b, c', 'a, b and 1 more')
    """
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown} and {len(words) - most:,} more"


def in_number(value: float | None, text: str | None = None) -> Cell:
    """Return an entry that sorts as a number."""
    return Cell(number(value) if text is None else text, value)


def in_percent(share: float | None) -> Cell:
    """Return an entry that is a share, with as many digits as those above and below it."""
    return Cell("unknown" if share is None else f"{100 * share:.1f} %", share)


def table(caption: str, items: Iterable[Any], columns: Mapping[str, Callable[[Any], Cell]]) -> Table:
    """Return a table with one row per item, of which each column shows something."""
    return Table(caption, list(columns), [[show(one) for show in columns.values()] for one in items])


def facts(caption: str, entries: dict[str, Any]) -> Table:
    """Return a table of names and values of any kind."""
    return Table(caption, ("name", "value"), [(Cell(str(name)), Cell(written(one))) for name, one in entries.items()])


def written(value: Any) -> str:
    """Return a value of any kind as text."""
    if value is None or isinstance(value, str):
        return value or "none"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False)
