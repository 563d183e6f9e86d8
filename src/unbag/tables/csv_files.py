"""Reading CSV files, and saying in which row one is broken."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.csv as pacsv

from unbag._utils.problems import TableError, fail

DELIMITERS = (",", ";", "\t", "|")
PIECE = 1 << 20
LONGEST_HEADER = 1 << 24
ROWS_IN_PIECE = 128

NUMBER = r"^\s*[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?\s*$"
"""Text that is a number, as people write it."""


class CsvFile:
    """A CSV file that was opened once, and is read from its beginning as often as need be.

    It is compressed if its path ends in .gz.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file, self._size = pa.PythonFile(file, "r"), os.fstat(file.fileno()).st_size
        self._refuse_other_contents()
        head = self._head()
        self._header = head.decode("utf-8-sig", "replace").strip()
        self.delimiter = max(DELIMITERS, key=self._header.count)
        # Each column of a piece costs something by itself: a piece holds many rows, however many columns there are.
        self._block_size = max(PIECE * 4, ROWS_IN_PIECE * len(self._header))
        try:
            # The types of many columns take long to find: names are read without rows, and rows for a single column.
            names = self._read(pa.BufferReader(head), {}, invalid_row_handler=lambda _: "skip").column_names
            self._parsed({}, names[:1]).close()
            self.names: list[str] = names
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            self._explain(error)

    def read(self, as_text: Collection[str], columns: list[str] | None = None) -> pa.Table:
        """Return the whole file, or some columns; some as text, the types of others are found from all values."""
        types = {name: pa.string() for name in self.names if name in as_text}
        try:
            try:
                table = self._read(self._bytes(), self._likely_types() | types)
            except pa.ArrowInvalid:
                table = self._read(self._bytes(), types)
        except pa.ArrowInvalid as error:
            self._explain(error, dict.fromkeys(self.names, pa.string()))
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            self._refuse_other_encodings()
        self._refuse_open_quote(table, table.num_rows)
        return table if columns is None else table.select(columns)

    def stream(self, columns: list[str], types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the file piece by piece, some columns of given types, others as text."""
        # All columns are read, because an open quotation in any of them swallows rows.
        types = {name: types.get(name, pa.string()) for name in self.names}
        rows, last = 0, None
        try:
            with self._parsed(types) as reader:
                for last in reader:
                    rows += last.num_rows
                    yield last.select(columns)
        except pa.ArrowInvalid as error:
            self._explain(error, types)
        if last is not None:
            self._refuse_open_quote(last, rows)

    def _bytes(self) -> Any:
        """Return a stream for Arrow from the beginning, whatever others of the same file have read."""
        stream = self._file.get_stream(0, self._size)
        return pa.CompressedInputStream(stream, "gzip") if self.path.suffix == ".gz" else stream

    def _unpacked(self) -> Any:
        """Return the same for lines and bytes."""
        stream = self._file.get_stream(0, self._size)
        return gzip.GzipFile(fileobj=stream) if self.path.suffix == ".gz" else io.BufferedReader(stream, PIECE)

    def _head(self) -> bytes:
        """Return the line with the names of the columns, and those below that a quotation in it may take up."""
        lines, head = self._unpacked(), b""
        while not head.strip() or (head.count(b'"') % 2 and len(head) < LONGEST_HEADER):
            if not (line := lines.readline(LONGEST_HEADER)):
                break
            head += line
        return head

    def _likely_types(self) -> dict[str, pa.DataType]:
        """Return the type of columns that begin with a decimal number, where there are many: these hold such, or text.

        To find out takes Arrow three times as long as to read numbers of a known type.
        """
        if self._block_size == PIECE * 4:
            return {}
        text = io.TextIOWrapper(self._unpacked(), "utf-8-sig", "replace", newline="")
        with contextlib.suppress(csv.Error):
            rows = (row for row in csv.reader(text, delimiter=self.delimiter) if row)
            next(rows, None)
            pairs = zip(self.names, next(rows, []), strict=False)
            return {name: pa.float64() for name, value in pairs if re.fullmatch(r"-?[0-9]+[.][0-9]+", value)}
        return {}

    def _read(self, source: Any, types: Mapping[str, pa.DataType], **options: Any) -> pa.Table:
        return pacsv.read_csv(
            source,
            read_options=pacsv.ReadOptions(block_size=self._block_size),
            parse_options=_parse_options(self.delimiter, **options),
            convert_options=pacsv.ConvertOptions(column_types=dict(types)),
        )

    def _parsed(
        self, types: Mapping[str, pa.DataType], columns: Sequence[str] = (), *, use_threads: bool = True, **options: Any
    ) -> Any:
        """Return the file piece by piece; some columns, or all."""
        return pacsv.open_csv(
            self._bytes(),
            read_options=pacsv.ReadOptions(block_size=self._block_size, use_threads=use_threads),
            parse_options=_parse_options(self.delimiter, **options),
            convert_options=pacsv.ConvertOptions(column_types=dict(types), include_columns=list(columns)),
        )

    def _refuse_other_contents(self) -> None:
        """Refuse what is no text in UTF-8 by its first bytes, before a parser finds sense in it."""
        try:
            start = self._unpacked().read(PIECE)
        except (gzip.BadGzipFile, EOFError) as error:
            raise self._fail(f"the file cannot be unpacked: {error}; copy or write it again") from error
        if not start.strip():
            raise self._fail("the file is empty; it needs a line with the names of the columns, and rows below")
        if start[:4] == b"PK\x03\x04" or start[:4] == b"\xd0\xcf\x11\xe0":
            raise self._fail("this is a spreadsheet, not a CSV file; open it and save it as CSV (UTF-8)")
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise self._fail("the file is written in UTF-16; save it again as UTF-8")
        if b"\0" in start:
            raise self._fail("the file holds bytes of zero, so that it is no text; save it again as CSV in UTF-8")

    def _refuse_other_encodings(self) -> None:
        """Name the first line that is not UTF-8, if there is one."""
        for number, line in enumerate(self._unpacked(), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise self._fail(
                    f"line {number} is not written in UTF-8 (byte 0x{byte:02x}, at place {error.start + 1} of the "
                    "line); save the file again as UTF-8"
                ) from None

    def _refuse_open_quote(self, end: Any, row: int) -> None:
        """Refuse a file whose last value is a quotation that never ends: it has swallowed the rows that follow."""
        texts = [place for place, kind in enumerate(end.schema.types) if not pa.types.is_primitive(kind)]
        values = end.select(texts).slice(max(end.num_rows - 1, 0)).to_pylist()
        if not any("\n" in str(value) for one in values for value in one.values()):
            return
        file = self._unpacked()
        quotes = sum(piece.count(b'"') for piece in iter(lambda: file.read(PIECE), b""))
        if quotes % 2:
            raise self._fail(
                "a quotation mark is opened here and never closed, so that all lines below are part of one value; "
                "close it",
                row,
            )

    def _explain(self, error: Exception, types: Mapping[str, pa.DataType] | None = None) -> NoReturn:
        """Say in which row the file is broken; slowly, and only when it is.

        The file is looked at again, because what Arrow says of it depends on the number of threads.
        """
        self._refuse_other_encodings()
        ragged: list[Any] = []

        def keep(row: Any) -> str:
            if not ragged:
                ragged.append(row)
            return "skip"

        text = dict.fromkeys(types or {}, pa.string())
        parsed = self._parsed(text, use_threads=False, invalid_row_handler=keep)
        with contextlib.suppress(pa.ArrowInvalid), parsed as reader:
            for _ in reader:
                if ragged:
                    break
        if ragged:
            row = ragged[0]
            if row.expected_columns == 1:  # a title, where names of columns should be
                raise self._fail(
                    f"the first line, {self._header!r}, names one column, but a later row has {row.actual_columns} "
                    "values; delete what stands above the names of the columns, such as a title",
                ) from error
            raise self._fail(
                f"the row has {row.actual_columns} values, but the header has {row.expected_columns}; look for a "
                f"missing or a stray {'comma' if self.delimiter == ',' else repr(self.delimiter)}, and put text that "
                "holds one in quotes",
                None if row.number is None else row.number - 1,
            ) from error
        self._refuse_values(types or {})
        raise self._fail(f"this is no CSV file that can be read: {error}") from error

    def _refuse_values(self, types: Mapping[str, pa.DataType]) -> None:
        """Name the first value that is not of the type of its column, if there is one."""
        text, rows = dict.fromkeys(types, pa.string()), 0
        with self._parsed(text) as reader:
            for piece in reader:
                for name, kind in types.items():
                    if not pa.types.is_string(kind):
                        raise_if_text(piece.column(name), kind, self.path, name, rows)
                rows += piece.num_rows

    def _fail(self, message: str, row: int | None = None) -> TableError:
        return fail(message, str(self.path), row)


def convert_text(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return text as values of a type, by the rules for files; raise ``pa.ArrowInvalid`` where one is none.

    Examples
    --------
    >>> convert_text(pa.array(["1.5", "NA", None]), pa.float64()).to_pylist()
    [1.5, None, None]
    """
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

    The text is a piece of a column, before which there are ``first_row`` rows.
    """
    if _fits(text, kind):
        return
    good, bad = 0, len(text)  # the first so many values fit, the first so many do not
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _fits(text.slice(good, middle - good), kind) else (good, middle)
    held = "true and false" if pa.types.is_boolean(kind) else "numbers"
    raise fail(
        f"the column held {held} when the model was fitted, but {text[good].as_py()!r} here; write {held}",
        str(path),
        first_row + good + 1,
        name,
    )


def _fits(text: pa.Array, kind: pa.DataType) -> bool:
    try:
        convert_text(text, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _parse_options(delimiter: str, **more: Any) -> pacsv.ParseOptions:
    return pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, **more)
