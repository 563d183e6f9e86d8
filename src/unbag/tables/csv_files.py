"""Reading CSV files, and saying in which row one is broken."""

from __future__ import annotations

import codecs
import contextlib
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv as pacsv

from unbag.tables.problems import fail

DELIMITERS = (",", ";", "\t", "|")
PIECE = 1 << 20
LONGEST_HEADER = 1 << 24

NUMBER = r"^\s*[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?\s*$"
"""Text that is a number, as people write it."""


def delimiter_of(path: Path) -> str:
    """Return what stands between the values of the first line: the most frequent of comma, semicolon, tab and bar."""
    line = _first_line(path)
    return max(DELIMITERS, key=line.count)


def csv_names(path: Path) -> list[str]:
    """Return the names of the columns."""
    _refuse_other_contents(path)
    delimiter = delimiter_of(path)
    try:
        with _open_stream(path, _parse_options(delimiter), {}) as reader:
            return list(reader.schema.names)
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        _explain(path, delimiter, error)


def read_csv(path: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the whole file; the types of other columns than those given are found from all of their values."""
    delimiter = delimiter_of(path)
    try:
        table = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(block_size=PIECE * 4),
            parse_options=_parse_options(delimiter),
            convert_options=pacsv.ConvertOptions(column_types=dict(types)),
        )
    except pa.ArrowInvalid as error:
        _explain(path, delimiter, error, dict.fromkeys(csv_names(path), pa.string()))
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        _refuse_other_encodings(path)
    _refuse_open_quote(path, table, table.num_rows)
    return table


def stream_csv(path: Path, types: Mapping[str, pa.DataType], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the file piece by piece, some columns of given types."""
    delimiter = delimiter_of(path)
    # All columns are read, because an open quotation in any of them swallows rows.
    types = {name: types.get(name, pa.string()) for name in csv_names(path)}
    rows, last = 0, None
    try:
        with _open_stream(path, _parse_options(delimiter), types) as reader:
            for last in reader:
                rows += last.num_rows
                yield last.select(columns)
    except pa.ArrowInvalid as error:
        _explain(path, delimiter, error, types)
    if last is not None:
        _refuse_open_quote(path, last, rows)


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


def refuse_text(text: pa.Array, kind: pa.DataType, path: Path, name: str, first_row: int = 0) -> None:
    """Raise an error that names the first value which is not of the type of its column, if there is one.

    Parameters
    ----------
    text
        A piece of a column, as it is written.
    kind
        Of the column when the model was fitted.
    path, name, first_row
        Where the piece is from; how many rows come before it.
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


def _open_stream(
    path: Path, options: pacsv.ParseOptions, types: Mapping[str, pa.DataType], *, use_threads: bool = True
) -> Any:
    return pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(block_size=PIECE * 4, use_threads=use_threads),
        parse_options=options,
        convert_options=pacsv.ConvertOptions(column_types=dict(types)),
    )


def _parse_options(delimiter: str, **more: Any) -> pacsv.ParseOptions:
    return pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, **more)


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")


def _first_line(path: Path) -> str:
    with _open(path) as file:
        return str(file.readline(LONGEST_HEADER).decode("utf-8", "replace"))


def _refuse_other_contents(path: Path) -> None:
    """Refuse what is no text in UTF-8 by its first bytes, before a parser finds sense in it."""
    try:
        with _open(path) as file:
            start = file.read(PIECE)
    except (gzip.BadGzipFile, EOFError) as error:
        raise fail(f"the file cannot be unpacked: {error}; copy or write it again", str(path)) from error
    if not start.strip():
        raise fail("the file is empty; it needs a line with the names of the columns, and rows below", str(path))
    if start[:4] == b"PK\x03\x04" or start[:4] == b"\xd0\xcf\x11\xe0":
        raise fail("this is a spreadsheet, not a CSV file; open it and save it as CSV (UTF-8)", str(path))
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise fail("the file is written in UTF-16; save it again as UTF-8", str(path))
    if b"\0" in start:
        raise fail("the file holds bytes of zero, so that it is no text; save it again as CSV in UTF-8", str(path))


def _refuse_other_encodings(path: Path) -> None:
    """Name the first line that is not UTF-8, if there is one."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise fail(
                    f"line {number} is not written in UTF-8 (byte 0x{byte:02x}, at place {error.start + 1} of the "
                    "line); save the file again as UTF-8",
                    str(path),
                ) from None


def _refuse_open_quote(path: Path, end: Any, row: int) -> None:
    """Refuse a file whose last value is a quotation that never ends: it has swallowed the rows that follow."""
    values = end.slice(max(end.num_rows - 1, 0)).to_pylist()
    if not any("\n" in str(value) for one in values for value in one.values()):
        return
    with _open(path) as file:
        quotes = sum(piece.count(b'"') for piece in iter(lambda: file.read(PIECE), b""))
    if quotes % 2:
        raise fail(
            "a quotation mark is opened here and never closed, so that all lines below are part of one value; close it",
            str(path),
            row,
        )


def _explain(path: Path, delimiter: str, error: Exception, types: Mapping[str, pa.DataType] | None = None) -> NoReturn:
    """Say in which row the file is broken; slowly, and only when it is.

    The file is looked at again, because what Arrow says of it depends on the number of threads.
    """
    _refuse_other_encodings(path)
    ragged: list[Any] = []

    def keep(row: Any) -> str:
        if not ragged:
            ragged.append(row)
        return "skip"

    text = dict.fromkeys(types or {}, pa.string())
    skip = _parse_options(delimiter, invalid_row_handler=keep)
    with contextlib.suppress(pa.ArrowInvalid), _open_stream(path, skip, text, use_threads=False) as reader:
        for _ in reader:
            if ragged:
                break
    if ragged:
        row = ragged[0]
        raise fail(
            f"the row has {row.actual_columns} values, but the header has {row.expected_columns}; look for a missing "
            f"or a stray {'comma' if delimiter == ',' else repr(delimiter)}, and put text that holds one in quotes",
            str(path),
            None if row.number is None else row.number - 1,
        ) from error
    _refuse_values(path, delimiter, types or {})
    raise fail(f"this is no CSV file that can be read: {error}", str(path)) from error


def _refuse_values(path: Path, delimiter: str, types: Mapping[str, pa.DataType]) -> None:
    """Name the first value that is not of the type of its column, if there is one."""
    text, rows = dict.fromkeys(types, pa.string()), 0
    with _open_stream(path, _parse_options(delimiter), text) as reader:
        for piece in reader:
            for name, kind in types.items():
                if not pa.types.is_string(kind):
                    refuse_text(piece.column(name), kind, path, name, rows)
            rows += piece.num_rows
