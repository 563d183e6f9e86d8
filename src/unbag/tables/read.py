"""Files to tables: CSV, Parquet, and folders of Parquet parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbag.tables.csv_files import csv_names, read_csv, stream_csv
from unbag.tables.parquet_files import is_parquet, parquet_schema, read_parquet, stream_parquet
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


def column_names(path: Path) -> list[str]:
    r"""Return the names of the columns of a file, without reading its rows.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "wards.csv"
    >>> _ = path.write_text("ward,ill,well\nnorth,1,2\n")
    >>> column_names(path)
    ['ward', 'ill', 'well']
    """
    _refuse_missing(path)
    names = parquet_schema(path).names if is_parquet(path) else csv_names(path)
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise fail("more than one column has this name; rename all but one", str(path), None, repeated[0])
    if nameless := [place for place, name in enumerate(names, 1) if not name.strip()]:
        raise fail(
            f"column {nameless[0]} has no name; give it one in the header, or leave it out (from pandas, write with "
            "index=False)",
            str(path),
        )
    return names


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
    names = column_names(path)
    if is_parquet(path):
        data = read_parquet(path)
    else:
        data = read_csv(path, {name: pa.string() for name in names if name in as_text})
    if data.num_rows == 0:
        raise fail("there are no rows, only names of columns", str(path))
    return Table(path, plain_types(data, str(path)))


def stream_table(path: Path, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield some columns of a file piece by piece; in a CSV file they are of the given types, as text otherwise."""
    if is_parquet(path):
        pieces = stream_parquet(path, columns)
    else:
        pieces = stream_csv(path, {name: types.get(name, pa.string()) for name in columns}, columns)
    for piece in pieces:
        yield plain_types(pa.Table.from_batches([piece]), str(path))


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
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise fail(f"the column is of type {kind}, which is no single number or word; leave it out", file, None, name)
    return column


def _refuse_missing(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the name")
