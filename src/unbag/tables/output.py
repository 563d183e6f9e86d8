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


def check_output(out: Path, inputs: Sequence[Path]) -> None:
    """Raise an error unless the name of a file ends in a format of tables, and it is none of the inputs."""
    if out.suffix not in (".csv", ".parquet"):
        raise fail(f"the name of the file must end in .csv or .parquet, got {out.name!r}", str(out))
    raise_if_input(out, inputs)


def write_output(out: Path, tables: Iterable[pa.Table], *, raw_text: bool = False) -> list[Problem]:
    """Write tables of the same columns one after the other, and return notes on text that was escaped."""
    escaped: Counter[str] = Counter()
    if out.suffix == ".csv" and not raw_text:
        tables = (_escape_formulas(table, escaped) for table in tables)
    remove_drafts(out)
    with atomic_file(out) as draft:
        write_draft(draft, tables, out.suffix)
    notes = []
    for name, count in escaped.items():
        values = "1 value begins" if count == 1 else f"{count:,} values begin"
        message = f"{values} like a formula, so that an apostrophe was put in front; --raw-text omits it"
        notes.append(Problem("note", message, str(out), None, name))
    return notes


def write_draft(path: Path, tables: Iterable[pa.Table], suffix: str) -> None:
    """Write tables of the same columns to a file in the format of a suffix."""
    with ExitStack() as stack:
        writer: Any = None
        for table in tables:
            kind = pq.ParquetWriter if suffix == ".parquet" else pacsv.CSVWriter
            writer = writer or stack.enter_context(kind(path, table.schema))
            writer.write_table(table)


def _escape_formulas(table: pa.Table, escaped: Counter[str]) -> pa.Table:
    """Put an apostrophe before values and names of columns that a spreadsheet takes for formulas, and count them."""

    def escape(name: str, column: Any) -> Any:
        if not pa.types.is_string(column.type):
            return column
        number = pc.match_substring_regex(column, NUMERIC_TEXT)  # which is no formula, whatever its sign
        formula = pc.and_not(pc.match_substring_regex(column, FORMULA), number).fill_null(False)
        if count := pc.sum(formula).as_py():
            escaped[name] += count
        return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)

    columns = [escape(name, table.column(name)) for name in table.column_names]
    return pa.table(columns, names=[escape(name, pa.array([name]))[0].as_py() for name in table.column_names])
