"""Read tables from files: CSV, Parquet, and folders of Parquet parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbag.tables.arrays import is_array
from unbag.tables.csv_files import CsvFile
from unbag.tables.parquet_files import MAGIC, SUFFIXES, ParquetFiles
from unbag.tables.problems import fail


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was read, and the file it came from."""

    path: Path
    data: pa.Table

    @property
    def file(self) -> str:
        """What to call the file in a sentence."""
        return str(self.path)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.data.column_names)

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        return self.data.column(name).combine_chunks()

    def first(self, name: str) -> pa.Array:
        """Return a column of the first row alone."""
        return self.data.column(name).slice(0, 1).combine_chunks()


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file that is open: what its columns are called, and its rows."""

    path: Path
    content: CsvFile | ParquetFiles

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.content.names

    def read(self, as_text: Collection[str] = (), columns: list[str] | None = None) -> Table:
        """Return the whole table, or some columns; see :func:`read_table`."""
        data = self.content.read(as_text, columns)
        if data.num_rows == 0:
            raise fail("there are no rows, only names of columns", str(self.path))
        return Table(self.path, plain_types(data, str(self.path)))

    def stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Yield some columns piece by piece; in a CSV file they are of the given types, as text otherwise."""
        for piece in self.content.stream(columns, types):
            yield plain_types(pa.Table.from_batches([piece]), str(self.path))


@contextmanager
def open_table(path: Path) -> Iterator[TableFile]:
    r"""Open a file once, for the names of its columns and for its rows.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "wards.csv"
    >>> _ = path.write_text("ward,ill,well\nnorth,1,2\n")
    >>> with open_table(path) as file:
    ...     file.names, file.read().data.num_rows
    (['ward', 'ill', 'well'], 1)
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the name")
    with ExitStack() as stack:
        file = None if path.is_dir() else stack.enter_context(open(path, "rb"))
        if file is None or path.suffix in SUFFIXES or file.read(len(MAGIC)) == MAGIC:
            yield _checked(TableFile(path, stack.enter_context(ParquetFiles(path, file))))
        else:
            yield _checked(TableFile(path, CsvFile(path, file)))


def read_table(path: Path, as_text: Collection[str] = ()) -> Table:
    r"""Return a file as a table; empty text is missing.

    Parameters
    ----------
    path
        CSV (also compressed as .csv.gz, and with semicolons or tabs), Parquet, or a folder of Parquet files.
    as_text
        Columns of a CSV file that are read as they are written, without looking for numbers: ids, so that 007 stays so.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("id,age\n007,31\n008,\n")
    >>> read_table(path, as_text=["id"]).data.to_pydict()
    {'id': ['007', '008'], 'age': [31, None]}
    """
    with open_table(path) as file:
        return file.read(as_text)


def plain_types(data: pa.Table, file: str) -> pa.Table:
    """Return a table of the few types that all else works with: dictionaries are looked up, empty text is missing."""
    columns = [_plain(data.column(place), name, file) for place, name in enumerate(data.column_names)]
    return pa.table(columns, names=data.column_names)


def _plain(column: pa.ChunkedArray, name: str, file: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column, kind = column.cast(pa.string()), pa.string()
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    if is_array(kind):
        return column
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise fail(f"the column is of type {kind}, which is no single number or word; leave it out", file, None, name)
    return column


def _checked(table: TableFile) -> TableFile:
    """Refuse columns without a name, and two of the same."""
    repeated = [name for name, count in Counter(table.names).items() if count > 1]
    if repeated:
        raise fail("more than one column has this name; rename all but one", str(table.path), None, repeated[0])
    if nameless := [place for place, name in enumerate(table.names, 1) if not name.strip()]:
        raise fail(
            f"column {nameless[0]} has no name; give it one in the header, or leave it out (from pandas, write with "
            "index=False)",
            str(table.path),
        )
    return table
