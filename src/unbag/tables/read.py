"""Read tables from files: CSV, Parquet, and folders of Parquet parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from unbag._utils.problems import fail
from unbag.data.columns import Table, plain_types
from unbag.tables.csv_files import CsvFile
from unbag.tables.parquet_files import MAGIC, SUFFIXES, ParquetFiles


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
