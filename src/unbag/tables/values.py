"""What was observed of each group of a file, how its columns were read, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from unbag._utils.problems import NAMED, Problem, in_rows


class ColumnRead(NamedTuple):
    """How some cells of a column were read."""

    column: str
    read_as: str
    cells: int


@dataclass(frozen=True, eq=False)
class Values:
    """What was observed, a row for each row of the file; None where errors among the problems do not allow it."""

    z: np.ndarray | None
    problems: list[Problem]
    read: list[ColumnRead] = field(default_factory=list)
    left_out: np.ndarray | None = None
    """Rows of the file whose groups are not learned from, (rows,)."""


class Refusals:
    """Rows that cannot be used, each with one sentence: errors, or, if they are dropped, one note that names them.

    Parameters
    ----------
    file
        For the sentences.
    looked_at
        Which rows matter, (rows,).
    name
        Returns what the group of a row is called.
    """

    def __init__(self, file: str, looked_at: np.ndarray, name: Callable[[int], str]) -> None:
        self.file, self.name = file, name
        self.good = looked_at.copy()
        self.errors: list[Problem] = []
        self._dropped: list[str] = []

    def refuse(self, wrong: np.ndarray, say: Callable[[int], str], column: str | None = None) -> None:
        """Refuse rows where a mask is true, (rows,), unless they are refused already."""
        wrong = wrong & self.good
        self.good &= ~wrong
        self.errors += in_rows(wrong, say, file=self.file, column=column)
        places = np.flatnonzero(wrong).tolist()
        self._dropped += [f"{self.name(row)} ({say(row).partition(';')[0]})" for row in places[:NAMED]]
        self._dropped += [self.name(row) for row in places[NAMED:]]

    def as_note(self) -> list[Problem]:
        """Return one note in place of errors, with the names of the groups and what is wrong with the first of them."""
        if not (count := len(self._dropped)):
            return []
        more = f" and {count - NAMED:,} more" if count > NAMED else ""
        rows = "1 group is" if count == 1 else f"{count:,} groups are"
        message = f"{rows} left out, because of --drop-bad-groups: {', '.join(self._dropped[:NAMED])}{more}"
        return [Problem("note", message, self.file, left_out=True)]
