"""Find the table in a file as people export it, without titles, totals, footnotes and other lines around it."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from unbag._utils.problems import NAMED, fail, list_some
from unbag.tables.cells import MARKS, NUMBER, Cell, read_cell
from unbag.tables.grid import Grid
from unbag.tables.tidy import MISSING, MISSING_NUMBER, TidyTable

MAX_AREAS = 2000  # number of rows up to which the first and the last may be totals without a name
MAX_NOTES = 200  # lines at the end that may be notes
MAX_UNIT = 14  # number of letters up to which a text below a name is a unit
HEADER_SHARE = 0.6  # a header names at least this share of the columns that the fullest of the first rows has
ROWS_FOR_WIDTH = 60

_SURE_TOTAL = re.compile(
    r".*\b((sub-?)?total|insgesamt)\b.*|totals|totaa?le?|totalt|i alt|gesamt|(zwischen|gesamt)?summe|celkem|összesen|"
    r"toplam|samtliga|yhteensä|ogółem|razem|итого|всего|合計"
)
_TOTAL = re.compile(
    rf"{_SURE_TOTAL.pattern}|sum|suma|somme|ensemble|all\b.*|alle|overall|zusammen|gesamt.*|average|mean"
)
_BETWEEN = re.compile(r"[-=_+|:]{4,}|(page|seite|p[aá]gina|strona)\s\d+.{0,12}", re.IGNORECASE)
_ASIDE = re.compile(r"(cover|(table of )?contents|index|notes?|read ?me|about|metadata|legend)\b.*", re.IGNORECASE)
_FOOTNOTE = re.compile(
    r"(source|sources|note|notes|footnote|quelle|fuente|last updated|published|copyright|©|crown copyright|stand:|"
    r"fonte|bron|källa|kilde|hinweis|anmerkung|legend|key:|symbols|extracted|generated|report|data as of|contact|"
    r"end of (table|worksheet|report)|this (table|worksheet)|\(?[\d,]+ (rows?|records?)\b|"
    r"[*†‡]|\[?\(?(note )?[0-9a-z]{1,2}[\]).:]\s|[a-z.:*]{1,3} ?= )",
    re.IGNORECASE,
)
_MARKERS = re.compile(r"(\s*(\[(note|notes|r|p)?\s*\w{1,2}\]|\(\d\)|(?<=\s)\d\)|[*†‡¹²³⁴])+)$", re.IGNORECASE)

Rows = list[tuple[int, list[str]]]  # rows with the numbers of their lines


def choose_table(path: Path, grids: dict[str, Grid]) -> TidyTable:
    """Return the table of a file; of a spreadsheet, the only sheet that has one."""
    tables = {name: table for name, grid in grids.items() if (table := find_table(path, grid)) is not None}
    tables = {name: table for name, table in tables.items() if not _ASIDE.fullmatch(name)} or tables
    if len(tables) > 1:
        raise fail(f"there are tables on several sheets; name one with --sheet: {list_some(tables)}", str(path))
    if not tables:
        message = "no table was found; it needs a line with the names of at least two columns, and rows below"
        raise fail(message, str(path))
    ((name, table),) = tables.items()
    if name and len(grids) > 1:
        table.note(f"the table was read from sheet {name!r}; name another one with --sheet")
    return table


def find_table(path: Path, grid: Grid) -> TidyTable | None:
    """Find the header and the rows of the table in a grid, without what stands around it; None if there is none."""
    rows = [entry for entry in enumerate(grid.rows, 1) if any(entry[1]) and not _BETWEEN.fullmatch("".join(entry[1]))]
    if len(rows) < 2 or max(map(_count_cells, rows)) < 2:
        return None
    table = TidyTable(path, [], {}, grid.delimiter)
    for note in grid.notes:
        table.note(note)
    if n_blank := len(grid.rows) - len(rows):
        table.note(f"{n_blank:,} blank {'row was' if n_blank == 1 else 'rows were'} left out (or ruled)")
    start = upper = _find_header(rows)
    header = names = rows[start][1]
    if len(set(filter(None, names))) < _count_cells(rows[start]):
        # Lines directly above with names that span several columns; a single text on the left is a title.
        while upper and rows[upper - 1][0] == rows[upper][0] - 1 and any(rows[upper - 1][1][1:]):
            upper -= 1
            names = _combine_headers(table, rows[upper][1], names)
    _note_rows(table, "title", "above the names of the columns", rows[:upper])
    body = _drop_other_tables(table, rows[start + 1 :], header)
    body = _drop_notes(table, grid, body, _count_cells(rows[start]))
    _note_rows(table, "header", "repeated among the rows", [entry for entry in body if entry[1] == header])
    body = [entry for entry in body if entry[1] != header]
    if body and _numbers_columns(body):
        _note_rows(table, "numbering", "below the names of the columns", body[:1])
        body = body[1:]
    body = _drop_sections(table, _drop_totals(table, body), len(names))
    if not body:
        return None
    names, body = _join_labels(table, names, body)
    if names[0] and all(len(row) == len(names) + 1 and row[-1] for _, row in body):
        names = ["", *names]
        table.note("the first column has no name, so all names were moved one column to the right")
    _set_columns(table, names, [row for _, row in body])
    return table


def _find_header(rows: Rows) -> int:
    """Return the place of the lowest line of names."""
    counts = [_count_cells(entry) for entry in rows]
    width = max(counts[:ROWS_FOR_WIDTH])
    wide = [place for place, (_, row) in enumerate(rows)
            if counts[place] >= max(2, HEADER_SHARE * width) and not row[0].endswith(":")]  # fmt: skip
    start = wide[0] if wide else counts.index(width)
    gaps = [place for place in range(1, len(rows)) if rows[place][0] > rows[place - 1][0] + 1]
    for gap in gaps:  # lines such as "Region,North" above a blank line are part of the title
        later = [place for place in wide if place >= gap]
        if start < gap and later and max(counts[start:gap]) < width and not _numbers(rows[later[0]][1]):
            start = later[0]
    while start + 2 < len(rows):
        below = [text for text in rows[start + 1][1] if text]
        more = len(below) - counts[start] + (not rows[start + 1][1][0] and "" in rows[start][1])
        spans = more > 0 and len(set(below)) < len(below)  # the upper of several header lines, with merged cells
        sentence = bool(rows[start][1][0]) and counts[start] < counts[start + 1] == width  # it contains a delimiter
        sentence = sentence and bool(_numbers(rows[start + 2][1])) and MISSING.isdisjoint(map(str.casefold, below))
        if not (spans or sentence) or _numbers(below, years=False):
            break
        start += 1
    return start


def _count_cells(entry: tuple[int, list[str]]) -> int:
    return sum(map(bool, entry[1]))


def _note_rows(table: TidyTable, kind: str, where: str, rows: Rows) -> None:
    if rows:
        texts = list_some([next(filter(None, row))[:60] for _, row in rows])
        lines = "line" if len(rows) == 1 else "lines"
        table.note(f"{len(rows)} {kind} {lines} {where} {'was' if len(rows) == 1 else 'were'} left out: {texts}")


def _combine_headers(table: TidyTable, upper: list[str], names: list[str]) -> list[str]:
    """Put the names of an upper header line, each valid until the next one, before the names of the lower line."""
    above, combined = "", []
    for place, name in enumerate(names):
        above = (own := "".join(upper[place : place + 1])) or above
        again = names.count(name) > 1 or name.isdecimal()
        combined.append(f"{above} {name}" if name and name != above and again else name or own)
    if changed := [new for new, name in zip(combined, names, strict=True) if new != name]:
        table.note(f"two header lines were combined, as in {changed[0]!r}")
    return combined


def _join_labels(table: TidyTable, names: list[str], body: Rows) -> tuple[list[str], Rows]:
    """Add a line of units to the names, and drop lines of longer labels, as of questions, above the rows."""
    for n_lines in (1, 2):
        below = [_numbers(row) for _, row in body[n_lines : n_lines + 2]]
        labels = [dict(enumerate(row)) for _, row in body[:n_lines]]
        if len(below) < 2 or below[0] != below[1] or not below[0]:
            continue
        second = not body[0][1][0] and all(row[0] for _, row in body[1:3])  # a line of names has none of the rows
        if any(_numbers(row, years=not second) for _, row in body[:n_lines]):
            continue
        found = {label.get(n, "").casefold() for label in labels for n in below[0]}
        if found & MISSING_NUMBER or ("" in found and not (second and n_lines == 1 and any(found))):
            continue
        if n_lines > 1 or max(map(len, body[0][1])) > MAX_UNIT:
            _note_rows(table, "label", "below the names of the columns", body[:n_lines])
        elif len(below[0]) > 1 or second:
            above, joined = "", []
            for place, name in enumerate(names):
                label = labels[0].get(place, "")
                above = name or above
                joined.append(f"{above if label else name} {label}".strip())
            names, example = joined, joined[max(below[0])]
            table.note(f"a second line of names or units was joined to the first, as in {example!r}")
        else:
            continue
        return names, body[n_lines:]
    return names, body


def _drop_other_tables(table: TidyTable, body: Rows, header: list[str]) -> Rows:
    """Drop what follows another line of names: texts below a gap or a title in columns that contain numbers."""
    shown = Counter(place for _, row in body[:10] for place in _numbers(row))
    numeric = {place for place, count in shown.items() if 2 * count > len(body[:10])}
    for place in range(2, len(body) - 1):
        (number, row), before = body[place], body[place - 1]
        if not (number > before[0] + 1 or _count_cells(before) == 1):
            continue
        texts = {n for n, text in enumerate(row) if text and text.casefold() not in MISSING_NUMBER}
        if texts & numeric and len(texts) > 1 and not _numbers(row, years=False) and row != header:
            while _count_cells(body[place - 1]) == 1:  # its title
                place -= 1  # noqa: PLW2901
            table.note(f"another table was left out, which begins in line {body[place][0]}")
            return body[:place]
    return body


def _drop_notes(table: TidyTable, grid: Grid, body: Rows, n_names: int) -> Rows:
    """Drop the lines at the end of a table with a single text, or with texts alone below a gap."""
    looks_like_value, has_numbers = _value_checker(body), sum(bool(_numbers(row)) for _, row in body[:20])
    texts = {place for place in range(max(0, len(body) - MAX_NOTES), len(body))
             if _count_cells(body[place]) == 1 and not looks_like_value(body[place][1])}  # fmt: skip
    end = len(body)
    while end:
        number, row = body[end - 1]
        text, n_cells = next(filter(None, row)), _count_cells(body[end - 1])
        after_gap = number > 1 and not any(grid.rows[number - 2])
        alone = end - 1 in texts and (n_names > 2 or (bool(row[0]) and (after_gap or len(text) > 40)))
        marked = _FOOTNOTE.match(text) and (n_cells == 1 or (len(text) > 3 and n_cells < min(n_names, 3)))
        if not (alone or marked):
            # A legend of several columns follows a line of one text.
            first = min((place for place in texts if 2 * place >= len(body) and place < end), default=None)
            if first is None or 2 * has_numbers <= min(first, 20) or any(_numbers(row) for _, row in body[first:end]):
                break
            end = first + 1
        end -= 1
    _note_rows(table, "footnote", "below the rows", body[end:])
    return body[:end]


def _numbers_columns(body: Rows) -> bool:
    """Return whether the first row counts the columns, as in (1), (2), (3)."""
    bare = [text.strip("()[]") for text in body[0][1] if text]
    counted = [text.isdecimal() for text in bare]
    if len(bare) < 3 or not all(counted) or [int(text) - int(bare[0]) for text in bare] != [*range(len(bare))]:
        return False
    return body[0][1][-1][:1] in "([" or (len(bare) > 3 and len(body) > 2 and not _numbers(body[1][1][:1]))


def _value_checker(body: Rows) -> Callable[[list[str]], bool]:
    """Return whether the only text of a row occurs in its column, or has the form of ids or dates there."""

    def form(text: str) -> str:
        return re.sub(r"\d+", "9", re.sub(r"[^\W\d]+", "a", text))

    seen = {
        (place, text)
        for entry in body[:ROWS_FOR_WIDTH]
        if _count_cells(entry) > 1
        for place, text in enumerate(entry[1])
    }
    forms = {(place, form(text)) for place, text in seen}

    def looks_like_value(row: list[str]) -> bool:
        place, text = next((place, text) for place, text in enumerate(row) if text)
        return (place, text) in seen or ("9" in form(text) and (place, form(text)) in forms)

    return looks_like_value


def _drop_sections(table: TidyTable, body: Rows, n_names: int) -> Rows:
    """Drop lines with a single text among the rows, unless it looks like the id of a row without values."""
    sections, looks_like_value = [], _value_checker(body)
    for entry, below in pairwise(body):
        if n_names > 2 and _count_cells(entry) == 1 and entry[1][0] and _count_cells(below) > 1:
            sections += [] if looks_like_value(entry[1]) else [entry]
    _note_rows(table, "section", "among the rows", sections)
    left_out = {number for number, _ in sections}
    return [entry for entry in body if entry[0] not in left_out]


def _drop_totals(table: TidyTable, body: Rows) -> Rows:
    """Drop rows that are called a total, or that sum up other rows and are named so or are first or last."""
    kept: Rows = []
    since_last = 0
    for place, (number, row) in enumerate(body):
        label = next(filter(None, row))
        plain = label.casefold().rstrip(":").strip()
        named, sure = _TOTAL.fullmatch(plain), _SURE_TOTAL.fullmatch(plain)
        where, what = "of rows above", None
        if named:
            above = [cells for _, cells in kept]
            what = _sums_up(row, above, table.delimiter) or _sums_up(row, above[since_last:], table.delimiter)
        if what is None and place in (0, len(body) - 1) and (named or 4 < len(body) <= MAX_AREAS):
            rest = [cells for n, (_, cells) in enumerate(body) if n != place]
            rest = [cells for cells in rest if not _SURE_TOTAL.fullmatch(next(filter(None, cells)).casefold())]
            where, what = "of the other rows", _sums_up(row, rest, table.delimiter, 1 if named else 2)
        if what is not None:
            table.note(f"line {number} ({label!r}) was left out: its numbers are the {what} {where}")
        elif sure:
            table.note(f"line {number} ({label!r}) was left out as a total, but its numbers are not the sums of "
                       "the rows above; check whether rows are missing")  # fmt: skip
        else:
            kept.append((number, row))
            continue
        since_last = len(kept)
    return kept


def _sums_up(row: list[str], rows: list[list[str]], delimiter: str, n_columns: int = 1) -> str | None:
    """Return whether the numbers of a row are the sums, or else the means, of rows, as far as rounding permits."""
    fits = {"sums": 0, "means": 0}
    for place, text in enumerate(row):
        total = _read_number(text, delimiter)
        if total.kind != NUMBER:
            continue
        cells = [_read_number(other[place], delimiter) for other in rows if place < len(other)]
        numbers = [cell.low for cell in cells if cell.kind == NUMBER]
        if len(numbers) < 2 or not any(numbers):
            continue
        room = max(0.02 * abs(total.low), 5 * (len(cells) - len(numbers))) if n_columns == 1 else 1e-6 * abs(total.low)
        rounding = 0.5 * 10.0**-total.decimals if n_columns == 1 else -1  # what is not named a mean is none
        inside = min(numbers) <= total.low <= max(numbers)  # rates have no sums
        fits["sums"] += 1 if abs(total.low - sum(numbers)) <= room else 0 if inside else -len(row)
        fits["means"] += 1 if abs(total.low - sum(numbers) / len(numbers)) <= rounding else -len(row)
    return next((what for what, count in fits.items() if count >= n_columns), None)


def _set_columns(table: TidyTable, names: list[str], rows: list[list[str]]) -> None:
    """Set names and values of the columns, without blank columns and row numbers."""
    width = max(len(names), *map(len, rows))
    names = [*names, *[""] * (width - len(names))]
    cleaned, gap = [], False
    for place, name in enumerate(names):
        values = [row[place] if place < len(row) and row[place] else None for row in rows]
        blank = all(value is None for value in values)
        new = _MARKERS.sub("", re.sub(r"\s+", " ", name)).strip() or name
        if not name:
            gap = gap or blank
            numbering = [str(n) for n in range(len(rows) + 1)]
            if not blank and values in (numbering[:-1], numbering[1:]):
                table.note(f"column {place + 1}, which has no name, was left out because it only numbers the rows")
            if blank or values in (numbering[:-1], numbering[1:]):
                continue
            new = f"column {place + 1}"
            table.note(f"a column without a name was named {new!r}")
        elif new != name:
            cleaned.append(f"{name!r} to {new!r}")
        if new in table.columns and gap:
            table.note(f"another table was left out, which begins in column {place + 1} beside the first")
            break
        if new in table.columns:
            raise fail("more than one column has this name; rename all but one", str(table.path), None, new)
        if blank:
            table.note(f"column {new!r} has no values; if it holds formulas, save the file in its program first")
        table.columns[new] = values if table.columns else _fill_down(table, new, values, rows)
    if cleaned:
        table.note(f"names of columns were cleaned: {', '.join(cleaned[:NAMED])}")
    table.names = list(table.columns)


def _fill_down(table: TidyTable, name: str, values: list[str | None], rows: list[list[str]]) -> list[str | None]:
    """Repeat the values of the first column in the blank cells below them, if it names sections of the table."""
    shown = [value for value in values if value is not None]
    blank = len(values) - len(shown)
    next_full = all(len(row) > 1 and row[1] for row in rows)
    if not (values[0] and 0.3 * len(values) < blank and len(set(shown)) == len(shown) and next_full):
        return values
    if _numbers(shown):
        return values
    table.note(
        f"{blank:,} blank cells of column {name} were filled with the value above them, as those of merged cells"
    )
    filled: list[str | None] = []
    for value in values:
        filled.append(value or filled[-1])
    return filled


def _numbers(row: Sequence[str], *, years: bool = True) -> set[int]:
    """Return the places of numbers in a row, with or without numbers that may be years."""
    cells = {place: _read_number(text) for place, text in enumerate(row)}
    return {n for n, cell in cells.items() if cell.kind == NUMBER and (years or not 1900 <= cell.low <= 2100)}


def _read_number(text: str, delimiter: str = ",") -> Cell:
    """Read a cell before the decimal separator of its column is known."""
    first, second = MARKS[::-1] if delimiter == ";" else MARKS
    return cell if (cell := read_cell(text, first)).kind == NUMBER else read_cell(text, second)
