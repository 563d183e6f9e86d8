"""Problems of a file, as sentences that name the file, the row and the column, and say what to do."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unbag._utils.terminal import visible

Severity = Literal["error", "warning", "note"]

NAMED = 5
"""Number of rows or names that are listed; others are counted."""


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a table, or worth knowing about it.

    An error prevents a fit, a warning does not, and a note describes what was done about something harmless.
    """

    severity: Severity
    message: str  # a sentence: what was found, what was expected, what to do
    file: str | None = None
    row: int | None = None  # counted from 1, without the header
    column: str | None = None
    left_out: bool = False  # whether it concerns rows that are not part of the fit

    def __str__(self) -> str:
        places = [self.file, f"row {self.row}" if self.row else None, f"column {self.column}" if self.column else None]
        place = ", ".join(filter(None, places))
        return visible(f"{place}: {self.message}" if place else self.message)

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as JSON can hold it."""
        return {name: getattr(self, name) for name in ("severity", "message", "file", "row", "column")}


class TableError(ValueError):
    """Files that cannot be used as they are, with the reasons as :attr:`problems`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        errors = [problem for problem in self.problems if problem.severity == "error"]
        others = len(errors) - 1
        more = f"; {others} more {'problem' if others == 1 else 'problems'}: unbag check lists them all"
        super().__init__(f"{errors[0]}{more if others else ''}")


def fail(message: str, file: str | None = None, row: int | None = None, column: str | None = None) -> TableError:
    """Return an error with one problem, to be raised."""
    return TableError([Problem("error", message, file, row, column)])


@contextmanager
def failing(file: str | None = None) -> Iterator[None]:
    """Add the name of a file to errors of other parts of the library."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise fail(str(error), file) from error


def raise_errors(problems: Iterable[Problem]) -> None:
    """Raise if there is an error among the problems."""
    problems = list(problems)
    if any(problem.severity == "error" for problem in problems):
        raise TableError(problems)


def in_rows(
    bad: np.ndarray, describe: Callable[[int], str], file: str, column: str | None = None, severity: Severity = "error"
) -> Iterator[Problem]:
    """Yield a problem for each of the first rows where a mask is true, and one for the number of further rows."""
    places = np.flatnonzero(bad).tolist()
    for place in places[:NAMED]:
        yield Problem(severity, describe(place), file, place + 1, column)
    if (more := len(places) - NAMED) > 0:
        yield Problem(severity, f"the same in {more:,} more {'row' if more == 1 else 'rows'}", file, None, column)


def list_some(names: Iterable[Any], most: int = NAMED, form: Callable[[Any], str] = repr) -> str:
    """List a few names, and how many more there are.

    Examples
    --------
    >>> list_some("abc", 3), list_some("abc", 2, str)
    ("'a', 'b', 'c'", 'a, b and 1 more')
    """
    names = list(names)
    shown = ", ".join(map(form, names[:most]))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
