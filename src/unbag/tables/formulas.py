"""Text that a spreadsheet would take for a formula, escaped in CSV files."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import Problem
from unbag.data.features import NUMERIC_TEXT

# What a formula begins with, also in the wide forms that a spreadsheet understands. Apostrophes in front are counted
# in, so that taking one away again gives back what was there.
FORMULA = "^'*[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20]"


@dataclass
class FormulaEscaper:
    """Puts an apostrophe before text in a CSV file that a spreadsheet would run as a formula.

    Not active in other formats than CSV, and where text is to be written as it is.

    Examples
    --------
    >>> escaper = FormulaEscaper()
    >>> escaper.escape(pa.table({"id": ["=1+1", "-1", "a"]})).to_pydict()
    {'id': ["'=1+1", '-1', 'a']}
    >>> print(escaper.as_problems("predicted.csv")[0])
    predicted.csv, column id: 1 value begins as a formula does, and is written behind an apostrophe; --raw-text leaves \
it out
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
        """Return what was escaped, as notes."""
        return [
            Problem(
                "note",
                f"{count:,} {'value begins' if count == 1 else 'values begin'} as a formula does, and "
                f"{'is' if count == 1 else 'are'} written behind an apostrophe; --raw-text leaves it out",
                file,
                None,
                name,
            )
            for name, count in self.escaped.items()
        ]

    def _escape(self, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        if not pa.types.is_string(column.type):
            return column
        # A number is no formula, whatever its sign.
        number = pc.match_substring_regex(column, NUMERIC_TEXT)
        formula = pc.and_not(pc.match_substring_regex(column, FORMULA), number).fill_null(False)
        if count := pc.sum(formula).as_py():
            self.escaped[name] = self.escaped.get(name, 0) + count
            column = pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)
        return column
