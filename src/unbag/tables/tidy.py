"""Repair tables as people export them: titles, totals, footnotes, number formats, dates, and words for missing values.

Every repair is recorded as a note. Nothing is repaired unless ``--tidy`` is given.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from itertools import product
from pathlib import Path

import pyarrow as pa

from unbag._utils.problems import NAMED, Problem, fail, list_some
from unbag.tables.cells import MARKS, NUMBER, UNKNOWN, read_cell
from unbag.tables.grid import Grid
from unbag.tables.options import Reading

HEADER_SHARE = 0.6
"""A header names at least this share of the columns that the fullest of the first rows has."""
ROWS_FOR_WIDTH = 60
MAX_CATEGORIES = 50
"""Number of different texts up to which a column of text is searched for variants of a category."""

MISSING = frozenset({
    *("n/a", "n.a.", "#n/a", "#na", "#value!", "#div/0!", "-", "--", "\u2013", "\u2014", "..", "...", "\u2026", "?"),
    *("not known", "not stated", "not available", "not recorded", "not applicable"),
    *("#null!", "#num!", "#ref!", "#name?", "\u2212", "\uff0d", "k. a.", "k.a."),
    *("keine angabe", "non disponible", "no disponible", "não informado", "нет данных", "н/д", "brak danych"),
})  # fmt: skip
"""Words for a missing value in any column, in small letters."""
MISSING_NUMBER = MISSING | {word for word in UNKNOWN if len(word) > 2} | {
    *("na", "nil", "refused", ".", ":", "x", "*", "**", "nd", "n.d.", "nc", "s/d", "abs", "absent", ": c"),
}  # fmt: skip
"""Further words for a missing value in a column whose other values are numbers or dates."""

_SURE_TOTAL = re.compile(r".*\b(sub-?)?total\b.*|totals|totaa?le?|gesamt|insgesamt|summe|ogółem|razem|итого|всего|合計")
_TOTAL = re.compile(rf"{_SURE_TOTAL.pattern}|sum|suma|somme|ensemble|all\b.*|alle|overall|zusammen")
_BETWEEN = re.compile(r"[-=_]{4,}|(page|seite|p[aá]gina|strona)\s\d+.{0,12}", re.IGNORECASE)
_ASIDE = re.compile(r"(cover|(table of )?contents|index|notes?|read ?me|about|metadata|legend)\b.*", re.IGNORECASE)
_FOOTNOTE = re.compile(
    r"(source|sources|note|notes|footnote|quelle|fuente|last updated|published|copyright|©|crown copyright|"
    r"end of (table|worksheet)|this (table|worksheet)|[*†‡]|\[?\(?(note )?[0-9a-z]{1,2}[\]).:]\s)",
    re.IGNORECASE,
)
_MARKERS = re.compile(r"(\s*(\[(note|notes|r|p)?\s*\w{1,2}\]|\(\d\)|[*†‡¹²³⁴])+)$", re.IGNORECASE)
_SIGN = r"(?:[€$£¥₹₽]|u?[sr]\$|eur|usd|gbp|chf|inr|kr|kč|zł)"
_CURRENCY = re.compile(rf"^(-?)\s*{_SIGN}\s*|\s*{_SIGN}$", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/. ]\s?(\d{1,2}|[a-z]{3,9})[-/. ,]\s?\d{2,4}([ t]\d{1,2}:\d{2}(:\d{2})?)?|"
                   r"[a-z]{3,9} \d{1,2},? \d{4}", re.IGNORECASE)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S")
_ORDERS = {
    "year first": ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d"),
    "day first": (
        *(f"%d{mark}%m{mark}%{year}" for mark, year in product("/.-", "Yy")),
        *("%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y"),
    ),
    "month first": (
        *(f"%m{mark}%d{mark}%{year}" for mark, year in product("/.-", "Yy")),
        *("%b %d, %Y", "%B %d, %Y", "%B %d %Y"),
    ),
}


@dataclass(eq=False)
class TidyTable:
    """The table inside a grid, and what was repaired."""

    path: Path
    names: list[str]
    columns: dict[str, list[str | None]]
    delimiter: str = ","
    notes: dict[str | None, list[Problem]] = field(default_factory=lambda: defaultdict(list))
    """Repairs of the table under None, and those of each column."""

    @property
    def repairs(self) -> list[Problem]:
        """Return all repairs as notes."""
        return [note for notes in self.notes.values() for note in notes]

    def note(self, message: str, column: str | None = None) -> None:
        """Record a repair."""
        self.notes[column].append(Problem("note", message, str(self.path), None, column))

    def read(self, names: Collection[str], as_text: Collection[str] = (), reading: Reading | None = None) -> pa.Table:
        """Return some columns as numbers, dates or text; those in ``as_text`` remain text."""
        arrays = {}
        for name in names:
            self.notes[name].clear()
            values = self.columns[name]
            if name in as_text:
                arrays[name] = pa.array(self._blank(name, values, MISSING), pa.string())
            else:
                arrays[name] = self._read_values(name, values, reading or Reading())
        return pa.table(arrays)

    def _read_values(self, name: str, values: list[str | None], reading: Reading) -> pa.Array:
        texts = list(dict.fromkeys(value for value in values if value is not None))
        plain = [text for text in texts if text.casefold() not in MISSING_NUMBER]
        if plain and (numbers := self._read_numbers(name, plain, reading.decimal)) is not None:
            found: dict[str | None, float] = dict(zip(plain, numbers, strict=True))
            blank = self._blank(name, values, MISSING_NUMBER)
            array = pa.array([found.get(value) for value in blank], pa.float64())
            whole = all(number.is_integer() and abs(number) < 2**53 for number in numbers)
            return array.cast(pa.int64()) if whole else array
        if plain and (dates := self._read_dates(name, plain, reading.dates)) is not None:
            moments: dict[str | None, datetime] = dict(zip(plain, dates, strict=True))
            blank = self._blank(name, values, MISSING_NUMBER)
            kind = pa.timestamp("s") if any(moment.time() != time() for moment in dates) else pa.date32()
            return pa.array([moments.get(value) for value in blank], pa.timestamp("s")).cast(kind)
        return pa.array(self._merge_variants(name, self._blank(name, values, MISSING)), pa.string())

    def _blank(self, name: str, values: list[str | None], words: Collection[str]) -> list[str | None]:
        """Replace words for missing values by None."""
        found = Counter(value for value in values if value is not None and value.casefold() in words)
        if not found:
            return values
        listed = ", ".join(f"{word!r} ({count:,})" for word, count in found.most_common(NAMED))
        self.note(f"words for missing values were read as blank: {listed}", name)
        return [None if value in found else value for value in values]

    def _read_numbers(self, name: str, texts: list[str], decimal: str | None) -> list[float] | None:
        """Return texts as numbers if all of them are; the decimal separator is inferred from the column."""
        if any(re.fullmatch(r"0\d+", text) for text in texts):
            return None  # a code with leading zeros
        bare = [_remove_currency(text) for text in texts]
        percent = sum("%" in text for text in bare)
        if percent not in (0, len(bare)):
            return None
        readings = {}
        for mark in MARKS if decimal is None else (decimal,):
            cells = [read_cell(text, mark) for text in bare]
            if all(cell.kind == NUMBER for cell in cells):
                readings[mark] = cells
        if not readings:
            return None
        ambiguous = len({tuple(cell.low for cell in cells) for cells in readings.values()}) > 1
        expected = "," if self.delimiter == ";" else "."
        mark = expected if ambiguous or expected in readings else next(iter(readings))
        cells = readings[mark]
        if ambiguous:
            other = next(m for m in MARKS if m != mark)
            advice = f"if it is the decimal separator, add --decimal {other!r}"
            self.note(f"{other!r} was read as a thousands separator, as in {_example(texts, ',.')!r}; {advice}", name)
        elif mark == "," and any("," in text for text in texts):
            self.note(f"decimal commas were read as points, as in {_example(texts, ',')!r}", name)
        if any(cell.separated for cell in cells) and not ambiguous:
            separated = texts[next(place for place, cell in enumerate(cells) if cell.separated)]
            self.note(f"thousands separators were removed, as in {separated!r}", name)
        if bare != texts:
            changed = next(text for text, plain in zip(texts, bare, strict=True) if text != plain)
            self.note(f"currency signs and accounting brackets were removed, as in {changed!r}", name)
        if percent:
            self.note(f"percentages were read as fractions, as in {texts[0]!r}", name)
        return [cell.low / (100 if percent else 1) for cell in cells]

    def _read_dates(self, name: str, texts: list[str], order: str | None) -> list[datetime] | None:
        """Return texts as dates if all of them are in the same order of day, month and year."""
        if not all(_DATE.fullmatch(text) for text in texts):
            return None
        readings = {kind: dates for kind in _ORDERS if (dates := _parse_dates(texts, _ORDERS[kind])) is not None}
        wanted = None if order is None else order.replace("-", " ")
        if "year first" not in readings and wanted in readings:
            readings = {wanted: readings[wanted]}
        if not readings:
            return None
        kind, dates = next(iter(readings.items()))
        if len(readings) > 1 and readings["day first"] != readings["month first"]:
            self.note(f"dates such as {texts[0]!r} were read day first, but month first is possible too; use --dates "
                      "month-first if that is right", name)  # fmt: skip
        elif kind != "year first":
            self.note(f"dates were read {kind}, as in {texts[0]!r}", name)
        return dates

    def _merge_variants(self, name: str, values: list[str | None]) -> list[str | None]:
        """Give categories that differ in case, spaces or abbreviation to one letter the most frequent spelling."""
        counts = Counter(value for value in values if value is not None)
        if not 1 < len(counts) <= MAX_CATEGORIES:
            return values
        variants = defaultdict(list)
        for text in sorted(counts, key=lambda text: (-counts[text], text)):
            variants[_normalise(text)].append(text)
        letters = [key for key in variants if len(key) == 1 and key.isalpha()]
        words = [[key for key in variants if len(key) > 1 and key.startswith(letter)] for letter in letters]
        if all(len(found) == 1 and found[0].isalpha() for found in words):  # but not A, AB, B, 0, or A*, A, B
            for letter, (word,) in zip(letters, words, strict=True):
                variants[word] += variants.pop(letter)
        to_spelling = {}
        for spellings in variants.values():
            longest = max(len(text) for text in spellings)
            kept = next(text for text in spellings if len(text) == longest or len(spellings) == 1 or len(text) > 1)
            to_spelling.update(dict.fromkeys(spellings, kept))
            if len(spellings) > 1:
                merged = [text for text in spellings if text != kept]
                self.note(f"{list_some(merged)} and {kept!r} were read as one category, {kept!r}", name)
        return [None if value is None else to_spelling[value] for value in values]


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
    counts = [sum(map(bool, row)) for _, row in rows]
    if len(rows) < 2 or max(counts) < 2:
        return None
    width = max(counts[:ROWS_FOR_WIDTH])
    start = next(
        place for place, (_, row) in enumerate(rows)
        if counts[place] >= max(2, HEADER_SHARE * width) and not row[0].endswith(":")
    )  # fmt: skip
    below = [text for _, row in rows[start + 1 : start + 2] for text in row if text]
    if len(set(below)) < len(below) > counts[start] and not _numbers(below):
        start += 1  # the upper of two header lines, with merged cells
    table = TidyTable(path, [], {}, grid.delimiter)
    for note in grid.notes:
        table.note(note)
    names, body = rows[start][1], rows[start + 1 :]
    _note_rows(table, "title", "above the names of the columns", rows[:start])
    if start and len(set(filter(None, names))) < len(list(filter(None, names))):
        names = _combine_headers(table, rows[start - 1][1], names)
    if n_blank := len(grid.rows) - len(rows):
        table.note(f"{n_blank:,} blank {'row was' if n_blank == 1 else 'rows were'} left out (or ruled)")
    body = _drop_notes(table, grid, body, len(list(filter(None, names))))
    repeated = [entry for entry in body if entry[1] == rows[start][1]]
    _note_rows(table, "header", "repeated among the rows", repeated)
    body = [entry for entry in body if entry[1] != rows[start][1]]
    body = _drop_totals(table, body)
    if not body:
        return None
    if len(body) > 2 and len(numeric := _numbers(body[1][1])) > 1 and numeric == _numbers(body[2][1]):
        label = dict(enumerate(body[0][1]))
        if not _numbers(body[0][1]) and all(label.get(n, "").casefold() not in {"", *MISSING_NUMBER} for n in numeric):
            names = [f"{name} {label.get(place, '')}".strip() for place, name in enumerate(names)]
            table.note(f"a second line of names or units was joined to the first, as in {names[min(numeric)]!r}")
            body = body[1:]
    if names[0] and all(len(row) == len(names) + 1 and row[-1] for _, row in body):
        names = ["", *names]
        table.note("the first column has no name, so all names were moved one column to the right")
    _set_columns(table, names, [row for _, row in body])
    return table


def _note_rows(table: TidyTable, kind: str, where: str, rows: Sequence[tuple[int, list[str]]]) -> None:
    if rows:
        texts = list_some([next(filter(None, row))[:60] for _, row in rows])
        lines = "line" if len(rows) == 1 else "lines"
        table.note(f"{len(rows)} {kind} {lines} {where} {'was' if len(rows) == 1 else 'were'} left out: {texts}")


def _combine_headers(table: TidyTable, upper: list[str], names: list[str]) -> list[str]:
    """Put the names of an upper header line, each valid until the next one, before the names of the lower line."""
    above, combined = "", []
    for place, name in enumerate(names):
        above = (own := "".join(upper[place : place + 1])) or above
        combined.append(f"{above} {name}" if name and name != above and names.count(name) > 1 else name or own)
    example = next(new for new, name in zip(combined, names, strict=True) if new != name)
    table.note(f"two header lines were combined, as in {example!r}")
    return combined


def _drop_notes(
    table: TidyTable, grid: Grid, body: list[tuple[int, list[str]]], n_names: int
) -> list[tuple[int, list[str]]]:
    """Drop the lines with a single text at the end of a table."""
    end = len(body)
    while end:
        number, row = body[end - 1]
        text, n_cells = next(filter(None, row)), sum(map(bool, row))
        after_gap = number > 1 and not any(grid.rows[number - 2])
        alone = n_cells == 1 and (n_names > 2 or (bool(row[0]) and (after_gap or len(text) > 40)))
        marked = _FOOTNOTE.match(text) and (n_cells == 1 or (len(text) > 3 and n_cells < min(n_names, 3)))
        if not (alone or marked):
            break
        end -= 1
    _note_rows(table, "footnote", "below the rows", body[end:])
    return body[:end]


def _drop_totals(table: TidyTable, body: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Drop rows that are called a total, or that are named as one and sum up rows above."""
    kept: list[tuple[int, list[str]]] = []
    since_last = 0
    for number, row in body:
        label = next(filter(None, row))
        if not _TOTAL.fullmatch(label.casefold().rstrip(":")):
            kept.append((number, row))
            continue
        above = [cells for _, cells in kept]
        if _sums_up(row, above) or _sums_up(row, above[since_last:]):
            table.note(f"line {number} ({label!r}) was left out: its numbers are the sums of rows above")
            since_last = len(kept)
        elif _SURE_TOTAL.fullmatch(label.casefold().rstrip(":")):
            table.note(f"line {number} ({label!r}) was left out as a total, but its numbers are not the sums of "
                       "the rows above; check whether rows are missing")  # fmt: skip
            since_last = len(kept)
        else:
            kept.append((number, row))
    return kept


def _sums_up(row: list[str], above: list[list[str]]) -> bool:
    """Return whether the numbers of a row are the sums of the numbers above, as far as rounding permits."""
    checked = 0
    for place, text in enumerate(row):
        total = read_cell(text)
        cells = [read_cell(other[place]) for other in above if place < len(other)]
        numbers = [cell.low for cell in cells if cell.kind == NUMBER]
        if total.kind != NUMBER or len(numbers) < 2:
            continue
        if abs(total.low - sum(numbers)) > max(0.02 * abs(total.low), 5 * (len(cells) - len(numbers))):
            return False
        checked += 1
    return checked > 0


def _set_columns(table: TidyTable, names: list[str], rows: list[list[str]]) -> None:
    """Set names and values of the columns, without blank columns and row numbers."""
    width = max(len(names), *map(len, rows))
    names = [*names, *[""] * (width - len(names))]
    cleaned = []
    for place, name in enumerate(names):
        values = [row[place] if place < len(row) and row[place] else None for row in rows]
        if not name:
            if all(value is None for value in values):
                continue
            if values in ([str(n) for n in range(len(rows))], [str(n) for n in range(1, len(rows) + 1)]):
                table.note(f"column {place + 1}, which has no name, was left out because it only numbers the rows")
                continue
        new = _MARKERS.sub("", re.sub(r"\s+", " ", name)).strip() or name
        if new != name:
            cleaned.append(f"{name!r} to {new!r}")
        if new in table.columns:
            raise fail("more than one column has this name; rename all but one", str(table.path), None, new)
        if all(value is None for value in values):
            table.note(f"column {new!r} has no values; if it holds formulas, save the file in its program first")
        table.columns[new] = values
    if cleaned:
        table.note(f"names of columns were cleaned: {', '.join(cleaned[:NAMED])}")
    table.names = list(table.columns)


def match_normalised(unmatched: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids that are equal but for case, spaces, a trailing ``.0`` or leading zeros, if only one matches.

    Examples
    --------
    >>> list(match_normalised(["KNOWLE NORTH ", "7"], ["Knowle North", "007", "8"]))
    [('KNOWLE NORTH ', 'Knowle North'), ('7', '007')]
    """
    by_form = defaultdict(set)
    for text in known:
        by_form[_normalise(text)].add(text)
    for text in unmatched:
        if len(matches := by_form.get(_normalise(text), set())) == 1:
            yield text, next(iter(matches))


def _normalise(text: str) -> str:
    text = re.sub(r"\.0+$", "", re.sub(r"\s+", " ", text).strip().casefold())
    return re.sub(r"^0+(?=\d)", "", text)


def _numbers(row: Sequence[str]) -> set[int]:
    """Return the places of numbers in a row."""
    return {place for place, text in enumerate(row) if read_cell(text).kind == NUMBER}


def _remove_currency(text: str) -> str:
    """Remove currency signs, and write numbers in brackets or before a minus as negative ones."""
    text = _CURRENCY.sub(lambda match: match[1] or "", text)
    text = re.sub(r"^([\d.,' ]+)-$", r"-\1", text)
    match = re.fullmatch(r"\((\D?[\d.,' ]+)\)", text)
    return f"-{_CURRENCY.sub('', match[1])}" if match else text


def _parse_dates(texts: list[str], formats: Sequence[str]) -> list[datetime] | None:
    """Return the dates, each in any of the formats; None if one fits none of them."""
    dates = []
    likely = [day + clock for clock in _TIMES for day in formats]
    for text in texts:
        for place, form in enumerate(likely):
            try:
                dates.append(datetime.strptime(text, form))
            except ValueError:
                continue
            likely.insert(0, likely.pop(place))  # the next one is probably written in the same way
            break
        else:
            return None
    return dates


def _example(texts: list[str], characters: str) -> str:
    return next((text for text in texts if any(character in text for character in characters)), texts[0])
