"""Read tables from files: CSV, Parquet, and folders of Parquet parts. An error names the file and the row."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unbag._utils.problems import TableError, fail
from unbag.data.columns import Table, plain_types

DELIMITERS = (",", ";", "\t", "|")
BLOCK_SIZE = 1 << 22
"""Bytes of CSV that are parsed together; no row may be longer."""
MAX_HEADER = 1 << 24
ROWS_IN_BLOCK = 128
SUFFIXES = (".parquet", ".pq")
ROWS_AT_ONCE = 1 << 16
SPREADSHEET_PARTS = (b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetype")
"""Names of the first file in the zip archives that spreadsheet programs write."""


class TableFile(ABC):
    """An open table: the names of its columns, and its rows, which can be read several times."""

    path: Path
    names: list[str]

    def read(self, as_text: Collection[str] = (), columns: list[str] | None = None) -> Table:
        """Return the whole table, or some columns; see :func:`read_table`."""
        data = self._read(as_text, columns)
        if data.num_rows == 0:
            raise self._fail("there are no rows, only names of columns")
        return Table(self.path, plain_types(data, str(self.path)))

    def stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        """Yield some columns in batches of rows; those of a CSV file have the given types, or else are text."""
        for batch in self._stream(columns, types):
            yield plain_types(pa.Table.from_batches([batch]), str(self.path))

    def raise_if_ambiguous(self) -> None:
        """Refuse columns without a name, and several columns of one name."""
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise fail("more than one column has this name; rename all but one", str(self.path), None, repeated[0])
        if nameless := [place for place, name in enumerate(self.names, 1) if not name.strip()]:
            advice = "name it in the header, or leave it out (from pandas, write with index=False)"
            raise self._fail(f"column {nameless[0]} has no name; {advice}")

    @abstractmethod
    def _read(self, as_text: Collection[str], columns: list[str] | None) -> pa.Table: ...

    @abstractmethod
    def _stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]: ...

    def _fail(self, message: str, row: int | None = None) -> TableError:
        return fail(message, str(self.path), row)


@contextmanager
def open_table(path: Path) -> Iterator[TableFile]:
    r"""Open a file once, for the names of its columns and for its rows."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the name")
    with ExitStack() as stack:
        file = None if path.is_dir() else stack.enter_context(open(path, "rb"))
        table: TableFile
        if file is None or path.suffix in SUFFIXES or file.read(4) == b"PAR1":
            table = stack.enter_context(ParquetFiles(path, file))
        else:
            table = CsvFile(path, file)
        table.raise_if_ambiguous()
        yield table


def read_table(path: Path, as_text: Collection[str] = ()) -> Table:
    r"""Return a file as a table; empty text is missing.

    Parameters
    ----------
    path
        CSV (also compressed by gzip, and with semicolons or tabs), Parquet, or a folder of Parquet files.
    as_text
        Columns of a CSV file whose values are kept as they are written: ids, so that 007 remains 007.

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


class CsvFile(TableFile):
    """A CSV file, perhaps compressed by gzip; it is opened once and read from its beginning as often as needed."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        file.seek(0)
        self._packed = file.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
        self._file, self._size = pa.PythonFile(file, "r"), os.fstat(file.fileno()).st_size
        self._refuse_other_formats()
        lines, head = self._unpacked(), b""
        while not head.strip() or head.count(b'"') % 2:  # names in quotes may contain line breaks
            if len(head) >= MAX_HEADER or not (line := lines.readline(MAX_HEADER)):
                break
            head += line
        if len(head) >= MAX_HEADER:
            size = f"more than {MAX_HEADER >> 20} MB"
            raise self._fail(f"the line with the names of the columns has {size}; this is not a CSV file")
        self._header = head.decode("utf-8-sig", "replace").strip()
        self.delimiter = max(DELIMITERS, key=self._header.count)
        # Each column of a block costs something by itself: a block holds many rows, however many columns there are.
        self._block_size = max(BLOCK_SIZE, min(ROWS_IN_BLOCK * len(head), 1 << 30))
        try:
            # The types of many columns take long to find: names are read without rows, and rows for a single column.
            header = pa.BufferReader(head.rstrip(b"\r\n") + b"\n")
            names = self._parse({}, parser=pacsv.read_csv, source=header, invalid_row_handler=lambda _: "skip")
            self.names = names.column_names
            if not lines.readline(1):
                raise self._fail("there are no rows, only names of columns")
            self._parse({}, self.names[:1]).close()
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            self._explain(error)

    def _read(self, as_text: Collection[str], columns: list[str] | None) -> pa.Table:
        types = {name: pa.string() for name in self.names if name in as_text}
        try:
            try:
                table = self._parse(self._likely_types() | types, parser=pacsv.read_csv)
            except pa.ArrowInvalid:
                table = self._parse(types, parser=pacsv.read_csv)
        except pa.ArrowInvalid as error:
            self._explain(error, dict.fromkeys(self.names, pa.string()))
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            self._refuse_other_encodings()
        self._refuse_open_quote(table, table.num_rows)
        return table if columns is None else table.select(columns)

    def _stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        # All columns are read, because an open quotation in any of them swallows rows.
        types = {name: types.get(name, pa.string()) for name in self.names}
        rows, last = 0, None
        try:
            with self._parse(types) as reader:
                for last in reader:
                    rows += last.num_rows
                    yield last.select(columns)
        except pa.ArrowInvalid as error:
            self._explain(error, types)
        if last is not None:
            self._refuse_open_quote(last, rows)

    def _bytes(self) -> Any:
        """Return a stream for Arrow from the beginning, whatever other streams of the file have read."""
        stream = self._file.get_stream(0, self._size)
        return pa.CompressedInputStream(stream, "gzip") if self._packed else stream

    def _unpacked(self) -> Any:
        """Return a stream of lines and bytes for Python from the beginning."""
        stream = self._file.get_stream(0, self._size)
        return gzip.GzipFile(fileobj=stream) if self._packed else io.BufferedReader(stream, 1 << 20)

    def _likely_types(self) -> dict[str, pa.DataType]:
        """Return the type of columns that begin with a decimal number, if there are many columns.

        Arrow needs three times as long to infer the types of 10,000 columns as to read numbers of a known type.
        """
        if self._block_size == BLOCK_SIZE:
            return {}
        text = io.TextIOWrapper(self._unpacked(), "utf-8-sig", "replace", newline="")
        with contextlib.suppress(csv.Error):
            rows = (row for row in csv.reader(text, delimiter=self.delimiter) if row)
            next(rows, None)
            pairs = zip(self.names, next(rows, []), strict=False)
            return {name: pa.float64() for name, value in pairs if re.fullmatch(r"-?[0-9]+[.][0-9]+", value)}
        return {}

    def _parse(
        self, types: Mapping[str, pa.DataType], columns: Sequence[str] = (), *, parser: Any = pacsv.open_csv,
        source: Any = None, use_threads: bool = True, **options: Any
    ) -> Any:  # fmt: skip
        """Return a reader of blocks of rows, or what another parser returns; some columns, or all."""
        return parser(
            source or self._bytes(),
            read_options=pacsv.ReadOptions(block_size=self._block_size, use_threads=use_threads),
            parse_options=_parse_options(self.delimiter, **options),
            convert_options=pacsv.ConvertOptions(column_types=dict(types), include_columns=list(columns)),
        )

    def _refuse_other_formats(self) -> None:
        """Refuse by its first bytes what is not text in UTF-8, before a parser interprets it."""
        try:
            start = self._unpacked().read(1 << 20)
        except (gzip.BadGzipFile, EOFError) as error:
            raise self._fail(f"the file cannot be unpacked: {error}; copy or write it again") from error
        if not start.strip():
            raise self._fail("the file is empty; it needs a line with the names of the columns, and rows below")
        archive = start[:4] == b"PK\x03\x04"
        if start[:4] == b"\xd0\xcf\x11\xe0" or (archive and start[30:].startswith(SPREADSHEET_PARTS)):
            raise self._fail("this is a spreadsheet, not a CSV file; open it and save it as CSV (UTF-8)")
        if archive:
            raise self._fail("this is a zip archive; unpack it and name the file inside, or compress that with gzip")
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise self._fail("the file is written in UTF-16; save it again as UTF-8")
        if b"\0" in start:
            raise self._fail("the file contains zero bytes, so it is not text; save it again as CSV in UTF-8")

    def _refuse_other_encodings(self) -> None:
        """Name the first line that is not UTF-8, if there is one."""
        for number, line in enumerate(self._unpacked(), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"byte 0x{line[error.start]:02x}, at place {error.start + 1} of the line"
                message = f"line {number} is not written in UTF-8 ({where}); save the file again as UTF-8"
                raise self._fail(message) from None

    def _refuse_open_quote(self, end: Any, row: int) -> None:
        """Refuse a file whose last value is a quotation that never ends: it contains the rows that follow."""
        texts = [place for place, kind in enumerate(end.schema.types) if not pa.types.is_primitive(kind)]
        values = end.select(texts).slice(max(end.num_rows - 1, 0)).to_pylist()
        if any("\n" in str(value) for last in values for value in last.values()) and self._has_open_quote():
            raise self._fail("a quotation mark is opened here and never closed; close it", row)

    def _has_open_quote(self) -> bool:
        file = self._unpacked()
        return sum(piece.count(b'"') for piece in iter(lambda: file.read(1 << 20), b"")) % 2 == 1

    def _explain(self, error: Exception, types: Mapping[str, pa.DataType] | None = None) -> NoReturn:
        """Raise an error that names the row where the file is broken.

        The file is read again with one thread, because what Arrow reports depends on the number of threads.
        """
        if "straddl" in str(error):
            self._refuse_long_rows(error)
        self._refuse_other_encodings()
        ragged: list[Any] = []

        def keep(row: Any) -> str:
            ragged.append(row) if not ragged else None
            return "skip"

        text = dict.fromkeys(types or {}, pa.string())
        parsed = self._parse(text, use_threads=False, invalid_row_handler=keep)
        with contextlib.suppress(pa.ArrowInvalid), parsed as reader:
            for _ in reader:
                if ragged:
                    break
        if ragged:
            row = ragged[0]
            if row.expected_columns == 1:  # a title, where names of columns should be
                found = f"names one column, but a later row has {row.actual_columns} values"
                advice = "delete what stands above the names of the columns, such as a title"
                raise self._fail(f"the first line, {self._header!r}, {found}; {advice}") from error
            found = f"the row has {row.actual_columns} values, but the header has {row.expected_columns}"
            mark = "comma" if self.delimiter == "," else repr(self.delimiter)
            advice = f"look for a missing or a stray {mark}, and put text that contains one in quotes"
            raise self._fail(f"{found}; {advice}", None if row.number is None else row.number - 1) from error
        self._refuse_values(types or {})
        raise self._fail(f"this is not a CSV file that can be read: {error}") from error

    def _refuse_long_rows(self, error: Exception) -> NoReturn:
        """Refuse a row that is longer than a block, and name its line where it is on one line."""
        most, where, lines = self._block_size >> 20, "a row", self._unpacked()
        for number, line in enumerate(iter(partial(lines.readline, self._block_size), b""), 1):
            if len(line) >= self._block_size:
                where = f"line {number}"
                break
        advice = "shorten its text, or leave the column out of the file"
        if where == "a row" and self._has_open_quote():
            advice = "a quotation mark is opened and never closed; close it"
        raise self._fail(f"{where} has more than {most} MB, which is too long for one row; {advice}") from error

    def _refuse_values(self, types: Mapping[str, pa.DataType]) -> None:
        """Name the first value that is not of the type of its column, if there is one."""
        text, rows = dict.fromkeys(types, pa.string()), 0
        with self._parse(text) as reader:
            for batch in reader:
                for name, kind in types.items():
                    if not pa.types.is_string(kind):
                        raise_if_text(batch.column(name), kind, self.path, name, rows)
                rows += batch.num_rows


def convert_text(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return text as values of a type, by the rules of CSV files; raise ``pa.ArrowInvalid`` if a value has another."""
    if len(text) == 0:
        return pa.array([], kind)
    file = pa.BufferOutputStream()
    pacsv.write_csv(pa.table({"x": text}), file)
    table = pacsv.read_csv(
        pa.BufferReader(file.getvalue()),
        read_options=pacsv.ReadOptions(use_threads=False),
        parse_options=_parse_options(",", ignore_empty_lines=False),
        convert_options=pacsv.ConvertOptions(column_types={"x": kind}),
    )
    return table.column(0).combine_chunks()


def raise_if_text(text: pa.Array, kind: pa.DataType, path: Path, name: str, first_row: int = 0) -> None:
    """Raise an error that names the first value which is not of the type of its column, if there is one.

    The text is part of a column, after ``first_row`` rows.
    """
    if _fits(text, kind):
        return
    good, bad = 0, len(text)  # the first so many values fit, the first so many do not
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _fits(text.slice(good, middle - good), kind) else (good, middle)
    held = "true and false" if pa.types.is_boolean(kind) else "numbers"
    message = f"the column held {held} when the model was fitted, but {text[good].as_py()!r} here; write {held}"
    raise fail(message, str(path), first_row + good + 1, name)


def _fits(text: pa.Array, kind: pa.DataType) -> bool:
    try:
        convert_text(text, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _parse_options(delimiter: str, **more: Any) -> pacsv.ParseOptions:
    return pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, **more)


class ParquetFiles(TableFile):
    """A Parquet file, or a folder of parts that are one table and must have the same columns.

    Each part but the first is open only while it is read: a folder may contain more files than a process may open.
    """

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self.path = path
        self._first, *self._others = parts = parts_of(path)
        self.size = os.fstat(file.fileno()).st_size if file else sum(part.stat().st_size for part in parts)
        self._opened = _open_part(self._first, file)
        self._schema = self._opened.schema_arrow.remove_metadata()
        self.names = list(self._schema.names)

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The type of each column."""
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def _read(self, as_text: Collection[str], columns: list[str] | None) -> pa.Table:
        tables = []
        for path, file in self._parts():
            with _damage_named(path):
                tables.append(file.read(columns).replace_schema_metadata())
        return pa.concat_tables(tables)

    def _stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        for path, file in self._parts():
            for number in range(file.num_row_groups):
                with _damage_named(path, f"row group {number}: "):
                    yield from file.iter_batches(ROWS_AT_ONCE, row_groups=[number], columns=columns)

    def parts_with_rows(self) -> list[Path]:
        """Return the parts that have rows, all of which must have the same columns."""
        return [path for path, file in self._parts() if file.metadata.num_rows]

    def _parts(self) -> Iterator[tuple[Path, pq.ParquetFile]]:
        yield self._first, self._opened
        for path in self._others:
            with _open_part(path) as file:
                schema = file.schema_arrow.remove_metadata()
                if schema != self._schema:
                    difference = f"{_describe_difference(schema, self._schema)} than in {self._first.name}"
                    raise fail(f"{difference}; write all parts with the same columns", str(path))
                yield path, file


def parts_of(path: Path) -> list[Path]:
    """Return the files of a table, sorted by name; names that start with a dot or an underscore are skipped."""
    if not path.is_dir():
        return [path]
    inside = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    if folders := [file.name for file in inside if file.is_dir()]:
        raise fail(f"the folder contains another one, {folders[0]!r}; put all Parquet parts into one folder", str(path))
    parts = [file for file in inside if file.suffix in SUFFIXES]
    if others := [file.name for file in inside if file not in parts]:
        raise fail(f"the folder contains {others[0]!r} beside Parquet parts; move it elsewhere", str(path))
    if not parts:
        raise fail("the folder contains no Parquet files (*.parquet); name a file or the folder of parts", str(path))
    return parts


def state_of_parts(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of each file of a table, by which another one can be told from it."""
    parts = [(str(part.absolute()), part.stat()) for part in parts_of(path)]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in parts]


def _open_part(path: Path, file: BinaryIO | None = None) -> pq.ParquetFile:
    with _damage_named(path):
        return pq.ParquetFile(file or path, buffer_size=1 << 20, pre_buffer=False)


@contextmanager
def _damage_named(path: Path, where: str = "") -> Iterator[None]:
    """Name a file that cannot be read, and say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise fail("the part is not there any more; put it back, or begin anew without it", str(path)) from None
    except (pa.ArrowException, OSError) as error:
        if path.stat().st_size == 0:
            raise fail("the file is empty; write or copy it again", str(path)) from error
        what = f"{where}this is not a Parquet file, or it is truncated: {str(error).partition('.')[0]}"
        raise fail(f"{what}; write or copy it again", str(path)) from error


def _describe_difference(schema: pa.Schema, first: pa.Schema) -> str:
    if schema.names != first.names:
        differ = [name for name in schema.names if name not in first.names]
        differ = differ or [name for name in first.names if name not in schema.names]
        return f"this part has other columns ({', '.join(differ[:3])})" if differ else "the columns have another order"
    name = next(name for name in schema.names if schema.field(name).type != first.field(name).type)
    return f"column {name} is {schema.field(name).type} here, of another type"
