"""Text that a spreadsheet would take for a formula, escaped in CSV files."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem
from unbag.data.features import NUMERIC_TEXT

FORMULA = "^'*[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Beginning of a formula, also in wide characters. Apostrophes count, so that removing one restores the text."""


@dataclass
class FormulaEscaper:
    """Puts an apostrophe before text in a CSV file that a spreadsheet would run as a formula.

    Parameters
    ----------
    active
        False for other formats than CSV, and for text that is to be written as it is.
    escaped
        How many values were escaped, by column.

    Examples
    --------
    >>> FormulaEscaper().escape(pa.table({"id": ["=1+1", "-1", "a"]})).to_pydict()
    {'id': ["'=1+1", '-1', 'a']}
    """

    active: bool = True
    escaped: dict[str, int] = field(default_factory=dict)

    def escape(self, table: pa.Table) -> pa.Table:
        """Return a table with values and names of columns that no spreadsheet takes for a formula."""
        if not self.active:
            return table
        columns = [self._escape(name, table.column(name)) for name in table.column_names]
        names = [self._escape(name, pa.array([name]))[0].as_py() for name in table.column_names]
        return pa.table(columns, names=names)

    def as_problems(self, file: str) -> list[Problem]:
        """Return notes of what was escaped."""
        notes = []
        for name, count in self.escaped.items():
            values, verb = ("value begins", "is") if count == 1 else ("values begin", "are")
            message = (
                f"{count:,} {values} as a formula does, and {verb} written behind an apostrophe; --raw-text leaves "
            )
            notes.append(Problem("note", f"{message}it out", file, None, name))
        return notes

    def _escape(self, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        if not pa.types.is_string(column.type):
            return column
        number = pc.match_substring_regex(column, NUMERIC_TEXT)  # which is no formula, whatever its sign
        formula = pc.and_not(pc.match_substring_regex(column, FORMULA), number).fill_null(False)
        if count := pc.sum(formula).as_py():
            self.escaped[name] = self.escaped.get(name, 0) + count
            column = pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)
        return column
