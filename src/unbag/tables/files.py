"""Read and write tables: CSV, Parquet, and folders of Parquet parts. An error names the file and the row."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unbag._utils.files import atomic_file, raise_if_input, remove_drafts
from unbag._utils.problems import Problem, TableError, fail
from unbag.data.columns import Table, plain_types
from unbag.data.features import NUMERIC_TEXT
from unbag.tables.grid import DELIMITERS, read_grids
from unbag.tables.layout import choose_table
from unbag.tables.options import Reading, is_spreadsheet

BLOCK_SIZE = 1 << 22  # bytes of CSV that are parsed together; no row may be longer
MAX_HEADER = 1 << 24
ROWS_IN_BLOCK = 128
SUFFIXES = (".parquet", ".pq")
BAG_SUFFIXES = (".npy", ".pt", ".safetensors", ".h5", ".hdf5")
ROWS_AT_ONCE = 1 << 16
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
FORMULA = "^'*[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Beginning of a formula, also in wide characters. Apostrophes count, so that removing one restores the text."""
DELETE_TITLE = "delete the lines above the names of the columns, such as a title, or add --tidy"
SPREADSHEET_PARTS = (b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetype")
"""Names of the first file in the zip archives that spreadsheet programs write."""
MISSING = pa.array(pacsv.ConvertOptions().null_values)  # texts that mean a missing number


class TableFile(ABC):
    """An open table: the names of its columns, and its rows, which can be read several times."""

    path: Path
    names: list[str]

    repairs: Sequence[Problem] = ()  # what was repaired when the file was read, as notes

    def read(
        self, as_text: Collection[str] = (), columns: list[str] | None = None, counts: Collection[str] = ()
    ) -> Table:
        """Return the whole table, or some columns; those of ids and counts remain text, see :func:`read_table`."""
        data = self._read(as_text, columns, counts)
        if data.num_rows == 0:
            raise self._fail("there are no rows, only names of columns")
        return Table(self.path, plain_types(data, str(self.path)))

    def stream(self, columns: list[str]) -> Iterator[pa.Table]:
        """Yield some columns in batches of rows; those of a CSV file are text."""
        for batch in self._stream(columns):
            yield plain_types(pa.Table.from_batches([batch]), str(self.path))

    def raise_if_ambiguous(self) -> None:
        """Refuse columns without a name, and several columns of one name."""
        nameless = [place for place, name in enumerate(self.names, 1) if not name.strip()]
        if len(nameless) > 1:
            first = next((name for name in self.names if name.strip()), "")
            message = f"{len(nameless)} of {len(self.names)} columns have no name; the names begin with {first!r}"
            raise self._fail(f"{message}; {DELETE_TITLE}")
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise fail("more than one column has this name; rename all but one", str(self.path), None, repeated[0])
        if nameless:
            advice = "name it in the header, or remove it (from pandas, write with index=False)"
            raise self._fail(f"column {nameless[0]} has no name; {advice}")

    @abstractmethod
    def _read(self, as_text: Collection[str], columns: list[str] | None, counts: Collection[str]) -> pa.Table: ...

    @abstractmethod
    def _stream(self, columns: list[str]) -> Iterator[pa.RecordBatch]: ...

    def _fail(self, message: str, row: int | None = None) -> TableError:
        return fail(message, str(self.path), row)


@contextmanager
def open_table(path: Path, reading: Reading | None = None) -> Iterator[TableFile]:
    """Open a file once, for the names of its columns and for its rows; its first bytes determine the format."""
    reading = reading or Reading()
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}; check the name")
    with ExitStack() as stack:
        file = None if path.is_dir() else stack.enter_context(open(path, "rb"))
        table: TableFile
        if file is None and {part.suffix.lower() for part in path.iterdir()} & {*BAG_SUFFIXES}:
            from unbag.tables.bags import BagFolder  # noqa: PLC0415 (imports this module)

            table = BagFolder(path)
        elif file is None or path.suffix in SUFFIXES or file.read(4) == b"PAR1":
            table = stack.enter_context(ParquetFiles(path, file))
        elif reading.tidy:
            table = TidyFile(path, reading)
        elif is_spreadsheet(path) or reading.sheet is not None:
            table = CsvFile(path, stack.enter_context(_as_csv(path, reading.sheet)))
        else:
            table = CsvFile(path, file)
        table.raise_if_ambiguous()
        yield table


@contextmanager
def _as_csv(path: Path, sheet: str | None) -> Iterator[Any]:
    """Write a sheet to a temporary CSV file; of several sheets, the caller has to choose."""
    grids = {name: grid for name, grid in read_grids(path, sheet).items() if any(map(any, grid.rows))}
    if len(grids) > 1:
        raise fail(f"there are several sheets; name one with --sheet: {', '.join(map(repr, grids))}", str(path))
    with TemporaryFile() as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        for grid in grids.values():
            csv.writer(text).writerows(grid.rows)
        yield file
        text.detach()


def read_table(path: Path, as_text: Collection[str] = ()) -> Table:
    """Return a file as a table: CSV (also compressed, and with semicolons or tabs), Parquet, or a folder of Parquet.

    ``as_text`` names columns of a CSV file whose values are kept as they are written, such as ids. Empty text is
    missing.
    """
    with open_table(path) as file:
        return file.read(as_text)


class TidyFile(TableFile):
    """A CSV file or a sheet that is repaired while it is read into memory."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self.path, self._reading = path, reading
        self._table = choose_table(path, read_grids(path, reading.sheet))
        self.names = self._table.names
        self.data: pa.Table | None = None

    def _read(self, as_text: Collection[str], columns: list[str] | None, counts: Collection[str]) -> pa.Table:
        self.data = self._table.read(self.names if columns is None else columns, as_text, counts, self._reading)
        self.repairs = self._table.repairs
        return self.data

    def _stream(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._read((), columns, ()).to_batches(ROWS_AT_ONCE)


class CsvFile(TableFile):
    """A CSV file, perhaps compressed by gzip; it is opened once and read from its beginning as often as needed."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.names = path, []
        file.seek(0)
        self._packed = file.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
        # A thread of Arrow that reads ahead in a file of Python would need an interpreter that may have ended.
        name = f"/dev/fd/{file.fileno()}"
        self._file = pa.OSFile(name) if os.path.exists(name) else pa.PythonFile(file, "r")
        self._size = os.fstat(file.fileno()).st_size
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
        # Each column of a block has a fixed cost: a block contains many rows, however many columns there are.
        self._block_size = max(BLOCK_SIZE, min(ROWS_IN_BLOCK * len(head), 1 << 30))
        try:
            # The types of many columns take long to infer: names are read without rows.
            text = head.decode("utf-8-sig").strip("\r\n")
            self.names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter))
            if not lines.readline(1):
                raise self._fail("there are no rows, only names of columns")
            self._parse(self.names).close()
        except (UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
            self._explain(error)

    def _read(self, as_text: Collection[str], columns: list[str] | None, counts: Collection[str]) -> pa.Table:
        try:
            table = self._parse([*as_text, *counts], pacsv.read_csv)
        except pa.ArrowInvalid as error:
            self._explain(error)
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            self._refuse_other_encodings()
        self._refuse_open_quote(table, table.num_rows)
        return table if columns is None else table.select(columns)

    def _stream(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        # All columns are read, because an open quotation in any of them contains the rows below it.
        rows, last = 0, None
        try:
            with self._parse(self.names) as reader:
                for last in reader:
                    rows += last.num_rows
                    yield last.select(columns)
        except pa.ArrowInvalid as error:
            self._explain(error)
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

    def _parse(self, as_text: Collection[str], parser: Any = pacsv.open_csv) -> Any:
        """Return a reader of blocks of rows, or the result of another parser; types of columns are inferred."""
        return parser(
            self._bytes(),
            read_options=pacsv.ReadOptions(block_size=self._block_size),
            parse_options=pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(as_text, pa.string())),
        )

    def _refuse_other_formats(self) -> None:
        """Refuse by its first bytes a file that is not text in UTF-8, before a parser interprets it."""
        try:
            start = self._unpacked().read(1 << 20)
        except (gzip.BadGzipFile, EOFError) as error:
            raise self._fail(f"the file cannot be unpacked: {error}; copy or write it again") from error
        archive = start[:4] == b"PK\x03\x04"
        spreadsheet = start[:4] == b"\xd0\xcf\x11\xe0" or (archive and start[30:].startswith(SPREADSHEET_PARTS))
        unpack = "unpack it and name the file inside, or compress that with gzip"
        refusals = {
            "the file is empty; it needs a line with the names of the columns, and rows below": not start.strip(),
            "this is a spreadsheet; give it the suffix .xlsx (or .xls, .ods), or save it as CSV": spreadsheet,
            f"this is a zip archive; {unpack}": archive,
            "the file is written in UTF-16; save it again as UTF-8, or add --tidy": start[:2] in UTF_16,
            "the file contains zero bytes, so it is not text; save it again as CSV in UTF-8": b"\0" in start,
        }
        for message, applies in refusals.items():
            if applies:
                raise self._fail(message)

    def _refuse_other_encodings(self) -> None:
        """Name the first line that is not UTF-8, if there is one."""
        for number, line in enumerate(self._unpacked(), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"byte 0x{line[error.start]:02x}, at place {error.start + 1} of the line"
                message = f"line {number} is not written in UTF-8 ({where}); save it again as UTF-8, or add --tidy"
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

    def _explain(self, error: Exception) -> NoReturn:
        """Raise an error that names the row where the file is broken.

        The file is read again by Python, because what Arrow reports depends on the number of threads.
        """
        if "straddl" in str(error):  # a row is longer than a block
            lines = iter(partial(self._unpacked().readline, self._block_size), b"")
            line = next((number for number, text in enumerate(lines, 1) if len(text) >= self._block_size), None)
            advice = "shorten its text, or remove the column from the file"
            if line is None and self._has_open_quote():
                advice = "a quotation mark is opened and never closed; close it"
            size = f"more than {self._block_size >> 20} MB, which is too long for one row"
            raise self._fail(f"{'a row' if line is None else f'line {line}'} has {size}; {advice}") from error
        self._refuse_other_encodings()
        rows = csv.reader(io.TextIOWrapper(self._unpacked(), "utf-8-sig", newline=""), delimiter=self.delimiter)
        ragged: tuple[int, int] | None = None
        with suppress(csv.Error):
            widths = enumerate(map(len, filter(None, rows)))
            ragged = next(((number, width) for number, width in widths if width != len(self.names)), None)
        if ragged is None:
            raise self._fail(f"this is not a CSV file that can be read: {error}") from error
        number, width = ragged
        if len(self.names) == 1:
            found = f"the first line, {self._header!r}, names one column, but a later row has {width} values"
            raise self._fail(f"{found}; {DELETE_TITLE}") from error
        mark = "comma" if self.delimiter == "," else repr(self.delimiter)
        found = f"the row has {width} values, but the header has {len(self.names)}"
        advice = f"look for a missing or an extra {mark}, and put text that contains one in quotes"
        raise self._fail(f"{found}; {advice}", number) from error


def parse_text(text: pa.Array, kind: pa.DataType, path: Path, name: str, first_row: int) -> pa.Array:
    """Return part of a column of a CSV file, after some rows, as values of a type; an error names the first bad row."""
    plain = pc.utf8_trim_whitespace(text)
    plain = pc.if_else(pc.is_in(plain, value_set=MISSING), pa.scalar(None, pa.string()), plain)
    try:
        return plain.cast(kind)
    except pa.ArrowInvalid:
        if len(plain) > 1:  # one of the halves cannot be converted
            half = len(plain) // 2
            for start, part in ((0, text[:half]), (half, text[half:])):
                parse_text(part, kind, path, name, first_row + start)
    expected = "true and false" if pa.types.is_boolean(kind) else "numbers"
    message = f"the column held {expected} when the model was fitted, but {text[0].as_py()!r} here; write {expected}"
    raise fail(message, str(path), first_row + 1, name)


class ParquetFiles(TableFile):
    """A Parquet file, or a folder of parts that are one table and must have the same columns.

    Each part but the first is open only while it is read: a folder may contain more files than a process may open.
    """

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self.path = path
        self._first, *self._others = parts = parts_of(path)
        self.size = os.fstat(file.fileno()).st_size if file else sum(part.stat().st_size for part in parts)
        self._opened = _open_part(self._first, file)
        self.schema = self._opened.schema_arrow.remove_metadata()
        self.names = list(self.schema.names)

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _read(self, as_text: Collection[str], columns: list[str] | None, counts: Collection[str]) -> pa.Table:
        tables = []
        for path, file in self._parts():
            with _damage_named(path):
                tables.append(file.read(columns).replace_schema_metadata())
        return pa.concat_tables(tables)

    def _stream(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for path, file in self._parts():
            for number in range(file.num_row_groups):
                with _damage_named(path, f"row group {number}: "):
                    yield from file.iter_batches(ROWS_AT_ONCE, row_groups=[number], columns=columns)

    def parts_with_rows(self) -> list[Path]:
        """Return the parts that have rows, or all if none has."""
        return [path for path, file in self._parts() if file.metadata.num_rows] or [self._first, *self._others]

    def _parts(self) -> Iterator[tuple[Path, pq.ParquetFile]]:
        yield self._first, self._opened
        for path in self._others:
            with _open_part(path) as file:
                schema = file.schema_arrow.remove_metadata()
                if schema != self.schema:
                    difference = f"{_describe_difference(schema, self.schema)} than in {self._first.name}"
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
    """Return name, size and time of change of each file of a table, which identify its content."""
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
        raise fail("the part no longer exists; restore it, or start again without it", str(path)) from None
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
