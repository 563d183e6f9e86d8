"""Tables of a page, which sort by a click on a column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

NONE = "-"
"""Text of an empty entry, which sorts last."""


@dataclass(frozen=True)
class Cell:
    """An entry of a table: its text, the number it is sorted by, and the length of a bar behind it in percent."""

    text: str
    value: float | None = None
    bar: int | None = None


@dataclass(frozen=True)
class Table:
    """A table with a caption.

    Parameters
    ----------
    caption, columns, rows
        Caption, headings, and one cell for each heading in every row.
    numeric
        Columns of numbers, also if all numbers are missing.
    emphasis
        Rows that stand out or recede, by their position.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[str] = ()
    emphasis: Mapping[int, Literal["strong", "faint"]] = field(default_factory=dict)

    def is_number(self, column: int) -> bool:
        """Return whether a column holds numbers."""
        return self.columns[column] in self.numeric or any(row[column].value is not None for row in self.rows)

    def sort_key(self, row: Sequence[Cell], column: int) -> float | str | None:
        """Return the value by which a cell is sorted; None sorts last."""
        cell = row[column]
        return cell.value if self.is_number(column) else None if cell.text == NONE else cell.text
