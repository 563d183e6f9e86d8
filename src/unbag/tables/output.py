"""Write tables to CSV and Parquet, completely or not at all; text that a spreadsheet would run is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unbag._utils.files import atomic_file, raise_if_input, remove_drafts
from unbag._utils.problems import Problem, fail
from unbag.data.features import NUMERIC_TEXT

FORMULA = "^'*[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Beginning of a formula, also in wide characters. Apostrophes count, so that removing one restores the text."""


def check_format(out: Path) -> None:
    """Raise an error for a file whose name does not end in a format of tables."""
    if out.suffix not in (".csv", ".parquet"):
        raise fail(f"the name of the file must end in .csv or .parquet, got {out.name!r}", str(out))


def write_table(path: Path, pieces: Iterable[pa.Table], suffix: str) -> None:
    """Write tables of the same columns one after the other to a file, in the format of a suffix."""
    with ExitStack() as stack:
        writer: Any = None
        for piece in pieces:
            kind = pq.ParquetWriter if suffix == ".parquet" else pacsv.CSVWriter
            writer = writer or stack.enter_context(kind(path, piece.schema))
            writer.write_table(piece)


class Output:
    """A file of results, which appears when all rows are written, or not at all."""

    def __init__(self, out: Path, inputs: Sequence[Path], *, raw_text: bool = False) -> None:
        check_format(out)
        raise_if_input(out, inputs)
        self.path, self._raw_text = out, raw_text

    def write(self, tables: Iterable[pa.Table]) -> list[Problem]:
        """Write tables of the same columns one after the other, and return notes on text that was escaped."""
        escaped: Counter[str] = Counter()
        if self.path.suffix == ".csv" and not self._raw_text:
            tables = (escape_formulas(table, escaped) for table in tables)
        remove_drafts(self.path)
        with atomic_file(self.path) as draft:
            write_table(draft, tables, self.path.suffix)
        notes = []
        for name, count in escaped.items():
            values = "1 value begins" if count == 1 else f"{count:,} values begin"
            message = f"{values} like a formula, so that an apostrophe was put in front; --raw-text omits it"
            notes.append(Problem("note", message, str(self.path), None, name))
        return notes


def escape_formulas(table: pa.Table, escaped: Counter[str]) -> pa.Table:
    """Put an apostrophe before values and names of columns that a spreadsheet takes for formulas, and count them.

    Examples
    --------
    >>> escape_formulas(pa.table({"id": ["=1+1", "-1", "a"]}), Counter()).to_pydict()
    {'id': ["'=1+1", '-1', 'a']}
    """
    columns = [_escape(name, table.column(name), escaped) for name in table.column_names]
    names = [_escape(name, pa.array([name]), escaped)[0].as_py() for name in table.column_names]
    return pa.table(columns, names=names)


def _escape(name: str, column: Any, escaped: Counter[str]) -> Any:
    if not pa.types.is_string(column.type):
        return column
    number = pc.match_substring_regex(column, NUMERIC_TEXT)  # which is no formula, whatever its sign
    formula = pc.and_not(pc.match_substring_regex(column, FORMULA), number).fill_null(False)
    escaped += Counter({name: pc.sum(formula).as_py() or 0})
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)
