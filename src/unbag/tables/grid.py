"""Read a file as rows of text cells: delimited text in several encodings, and sheets of spreadsheets."""

import codecs
import csv
import gzip
import importlib
import io
import re
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from unbag._utils.problems import fail, list_some
from unbag.tables.options import is_spreadsheet

DELIMITERS = (",", ";", "\t", "|")
ROWS_FOR_DELIMITER = 200
SPACES = " {2,}"
_ENCODINGS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LOOKS_IN_1252 = {
    "cp1251": "[À-ÿ]{4}",
    "cp1250": r"\w[¹³¿](?=\w)|[£¯][a-zó]|[A-Z][¥Œ](?=[A-Z])",
    "cp932": "[\ufffd\u201a\u0192]",
}
_SPACES = str.maketrans(
    {"\u200b": None, "\ufeff": None, "\u00ad": None} | dict.fromkeys("\u00a0\u202f\u2007\u2009", " ")
)


@dataclass(frozen=True)
class Grid:
    """The cells of a file as text without surrounding spaces, and how they were read."""

    rows: list[list[str]]
    delimiter: str = ","
    notes: tuple[str, ...] = ()


def read_grids(path: Path, sheet: str | None = None) -> dict[str, Grid]:
    """Read the sheets of a spreadsheet by name, or a text file as the only entry, ``""``.

    ``sheet`` is the name of a sheet, or its number from 1; None reads all sheets.
    """
    if is_spreadsheet(path):
        return _read_sheets(path, sheet)
    if sheet is not None:
        message = "--sheet names a sheet of a spreadsheet, but this is no spreadsheet"
        raise fail(f"{message}; leave {sheet!r} out", str(path))
    content = path.read_bytes()
    text, notes = _decode(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    if named := re.match(r'"?sep=(.)"?[ ,;\t]*(\r\n|\r|\n)', text, re.IGNORECASE):
        delimiter, text = named[1], text[named.end() :]
        notes += (f"the first line names the separator {delimiter!r}",)
    else:
        delimiter = _find_delimiter(text)
    if delimiter == " ":
        rows = [re.split(SPACES, line.strip()) if line.strip() else [] for line in text.splitlines()]
        notes += ("columns were separated at two or more spaces",)
    else:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True))
    if any(re.match("=\"|'[-+=@\\d]", cell) for row in rows for cell in row):
        notes += ('marks by which a spreadsheet keeps texts, as in ="007" or \'007, were removed',)
    return {"": Grid([[_strip(cell) for cell in row] for row in rows], delimiter, notes)}


def _decode(content: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode text by its byte-order mark, as UTF-8, or else as the likeliest code page of Windows."""
    for mark, encoding in _ENCODINGS:
        if content.startswith(mark):
            text = content.decode(encoding)
            return text, () if encoding == "utf-8-sig" else ("the file was decoded from UTF-16",)
    if content[1:200:2].count(0) > 50:  # every other byte is zero
        return content.decode("utf-16-le"), ("the file was decoded from UTF-16",)
    try:
        return content.decode("utf-8"), ()
    except UnicodeDecodeError:
        western = content.decode("cp1252", "replace")
    encoding = next((code for code, sign in _LOOKS_IN_1252.items() if len(re.findall(sign, western)) > 2), "cp1252")
    note = f"the file is not UTF-8 and was decoded as Windows-{encoding[2:]} ({encoding}); check names with accents"
    return content.decode(encoding, "replace"), (note,)


def _find_delimiter(text: str) -> str:
    """Return the delimiter that divides most lines into the same number of cells, at least two; a space if none does.

    A space stands for two or more of them between the columns of a listing.
    """
    lines = [line for line in text.splitlines() if line.strip()][:ROWS_FOR_DELIMITER]

    def agreement(delimiter: str) -> tuple[int, int]:
        if delimiter == " ":
            widths = Counter(len(re.split(SPACES, line.strip())) for line in lines)
        else:
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            widths = Counter(len(row) for row, _ in zip(rows, range(ROWS_FOR_DELIMITER), strict=False) if any(row))
        return max(((count, width) for width, count in widths.items() if width > 1), default=(0, 0))

    return max((*DELIMITERS, " "), key=agreement)


def _read_sheets(path: Path, sheet: str | None) -> dict[str, Grid]:
    try:
        calamine: Any = importlib.import_module("python_calamine")
    except ImportError:
        message = "reading spreadsheets needs python-calamine: pip install unbag[excel], or save the sheet as CSV"
        raise fail(f"{message} (UTF-8)", str(path)) from None
    try:
        book = calamine.CalamineWorkbook.from_path(str(path))
    except (calamine.CalamineError, OSError) as error:
        raise fail(f"this spreadsheet cannot be read: {error}; save the sheet as CSV (UTF-8)", str(path)) from error
    hidden = {entry.name for entry in book.sheets_metadata if entry.visible != calamine.SheetVisibleEnum.Visible}
    names = list(book.sheet_names)
    if sheet is not None and sheet not in names:
        if not (sheet.isdecimal() and 1 <= int(sheet) <= len(names)):
            raise fail(f"there is no sheet {sheet!r}; choose one of {list_some(names)}", str(path))
        sheet = names[int(sheet) - 1]
    grids = {}
    for name in [name for name in names if name not in hidden] if sheet is None else [sheet]:
        entry = book.get_sheet_by_name(name)
        cells = entry.to_python(skip_empty_area=False)
        for (top, left), (bottom, right) in getattr(entry, "merged_cell_ranges", None) or ():
            for row in cells[top + 1 : bottom + 1]:
                if left == right < len(row) and isinstance(cells[top][left], str):
                    row[left] = cells[top][left]
        grids[name] = Grid([[_as_text(cell) for cell in row] for row in cells])
    return grids


def _as_text(cell: Any) -> str:
    """Return a cell of a spreadsheet as text: whole numbers without a point, dates in ISO format."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else f"{cell:.15g}"
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(" ")
    return cell.isoformat() if isinstance(cell, date | time) else _strip(str(cell))


def _strip(cell: str) -> str:
    """Remove spaces around a cell, also those that do not break, and what Excel puts around text: ="007" or '007."""
    text = cell.translate(_SPACES).strip()
    text = match[1] if (match := re.fullmatch(r'="(.*)"', text)) else text
    return text[1:] if re.match(r"'[-+=@\d]", text) and not text.endswith("'") else text
