"""Reading Parquet: a file, or a folder of parts that are one table."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from unbag._utils.problems import fail

MAGIC = b"PAR1"
SUFFIXES = (".parquet", ".pq")
ROWS_AT_ONCE = 1 << 16


class ParquetFiles:
    """A Parquet file, or a folder of parts that are one table and must have the same columns.

    Every part is opened once, and all but the first only while they are read: a folder may hold more than a process may
    have open.
    """

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self._first, *self._others = parts = parts_of(path)
        self.size = os.fstat(file.fileno()).st_size if file else sum(part.stat().st_size for part in parts)
        self._opened = _open(self._first, file)
        self._schema = self._opened.schema_arrow.remove_metadata()
        self.names: list[str] = list(self._schema.names)

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The type of each column."""
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def read(self, as_text: Collection[str], columns: list[str] | None = None) -> pa.Table:
        """Return the whole table, or some of its columns; its types are those of the file."""
        tables = []
        for path, file in self._parts():
            with _guarded(path):
                tables.append(file.read(columns).replace_schema_metadata())
        return pa.concat_tables(tables)

    def stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the table piece by piece, some of its columns in the types of the file, never a whole row group."""
        for path, file in self._parts():
            for number in range(file.num_row_groups):
                with _guarded(path, f"row group {number}: "):
                    yield from file.iter_batches(ROWS_AT_ONCE, row_groups=[number], columns=columns)

    def parts_with_rows(self) -> list[Path]:
        """Return the parts that have rows, all of which must have the same columns."""
        return [path for path, file in self._parts() if file.metadata.num_rows]

    def _parts(self) -> Iterator[tuple[Path, pq.ParquetFile]]:
        yield self._first, self._opened
        for path in self._others:
            with _open(path) as file:
                own = file.schema_arrow.remove_metadata()
                if own != self._schema:
                    difference = _difference(own, self._schema)
                    raise fail(
                        f"{difference} than in {self._first.name}; write all parts with the same columns", str(path)
                    )
                yield path, file


def parts_of(path: Path) -> list[Path]:
    """Return the files that a table is made of, by name; what starts with a dot or an underscore is none of them."""
    if not path.is_dir():
        return [path]
    inside = sorted(one for one in path.iterdir() if one.name[0] not in "._")
    if folders := [one.name for one in inside if one.is_dir()]:
        raise fail(f"the folder holds another one, {folders[0]!r}; put all Parquet parts into one folder", str(path))
    parts = [one for one in inside if one.suffix in SUFFIXES]
    if others := [one.name for one in inside if one not in parts]:
        raise fail(f"the folder holds {others[0]!r} beside Parquet parts; move it elsewhere", str(path))
    if not parts:
        raise fail("the folder holds no Parquet files (*.parquet); name a file, or the folder of the parts", str(path))
    return parts


def state_of_parts(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of each file of a table, by which it can be told from another one."""
    parts = [(str(part.absolute()), part.stat()) for part in parts_of(path)]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in parts]


def _open(path: Path, file: BinaryIO | None = None) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file or path, buffer_size=1 << 20, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise _damaged(path, error) from error
    except FileNotFoundError:
        raise fail("the part is not there any more; put it back, or begin anew without it", str(path)) from None


@contextmanager
def _guarded(path: Path, where: str = "") -> Iterator[None]:
    """Say of a file that was opened, and cannot be read, which it is and what to do."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error, where) from error


def _damaged(path: Path, error: Exception, where: str = "") -> Exception:
    if path.stat().st_size == 0:
        return fail("the file is empty; write or copy it again", str(path))
    reason = str(error).partition(".")[0]
    return fail(f"{where}this is no Parquet file, or it was cut short: {reason}; write or copy it again", str(path))


def _difference(own: pa.Schema, first: pa.Schema) -> str:
    if own.names != first.names:
        differ = [name for name in own.names if name not in first.names] or [
            name for name in first.names if name not in own.names
        ]
        return f"this part has other columns ({', '.join(differ[:3])})" if differ else "the columns have another order"
    name = next(name for name in own.names if own.field(name).type != first.field(name).type)
    return f"column {name} is {own.field(name).type} here, of another type"
