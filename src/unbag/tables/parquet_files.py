"""Reading Parquet: a file, or a folder of parts that are one table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unbag.tables.problems import fail

MAGIC = b"PAR1"
SUFFIXES = (".parquet", ".pq")
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ParquetFiles:
    """A Parquet file, or a folder of parts that are one table.

    Parts are opened one after the other, to compare their columns and again to read them: a folder may hold more than a
    process may have open.
    """

    path: Path

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns, which all parts must share, as they do the types."""
        return list(parquet_schema(self.path).names)

    def read(self, as_text: Collection[str]) -> pa.Table:
        """Return the whole table; its types are those of the file."""
        tables = []
        for part in parts_of(self.path):
            with _open(part) as file:
                tables.append(_guarded_read(file, part))
        return pa.concat_tables(tables)

    def stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the table piece by piece, some of its columns in the types of the file, never a whole row group."""
        for part in parts_of(self.path):
            with _open(part, buffer_size=1 << 20) as file:
                try:
                    yield from file.iter_batches(ROWS_AT_ONCE, columns=columns)
                except (pa.ArrowException, OSError) as error:
                    raise _damaged(part, error) from error


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


def parquet_schema(path: Path) -> pa.Schema:
    """Return names and types of the columns, which all parts must share."""
    first, *others = parts_of(path)
    with _open(first) as file:
        schema = file.schema_arrow.remove_metadata()
    for part in others:
        with _open(part) as file:
            own = file.schema_arrow.remove_metadata()
        if own != schema:
            raise fail(
                f"{_difference(own, schema)} than in {first.name}; write all parts with the same columns", str(part)
            )
    return schema


def _open(path: Path, buffer_size: int = 0) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, buffer_size=buffer_size, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise _damaged(path, error) from error


def _guarded_read(file: pq.ParquetFile, path: Path) -> pa.Table:
    try:
        return file.read().replace_schema_metadata()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> Exception:
    if path.stat().st_size == 0:
        return fail("the file is empty; write or copy it again", str(path))
    reason = str(error).partition(".")[0]
    return fail(f"this is no Parquet file, or it was cut short: {reason}; write or copy it again", str(path))


def _difference(own: pa.Schema, first: pa.Schema) -> str:
    if own.names != first.names:
        differ = [name for name in own.names if name not in first.names] or [
            name for name in first.names if name not in own.names
        ]
        return f"this part has other columns ({', '.join(differ[:3])})" if differ else "the columns have another order"
    name = next(name for name in own.names if own.field(name).type != first.field(name).type)
    return f"column {name} is {own.field(name).type} here, of another type"
