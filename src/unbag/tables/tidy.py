"""Read the columns of tables as people write them: number formats, dates, and words for missing values.

Every repair is recorded as a note. Nothing is repaired unless ``--tidy`` is given.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, time
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbag._utils.problems import NAMED, Problem, list_some
from unbag.tables.cells import BOUNDS, MARKS, NUMBER, UNKNOWN, Cell, is_readable, read_cell, remove_decorations
from unbag.tables.dates import parse_compact, parse_dates, parse_serials
from unbag.tables.ids import normalise
from unbag.tables.options import Reading

MAX_CATEGORIES = 50  # number of different texts up to which a column of text is searched for variants of a category

MISSING = frozenset({
    *("n/a", "n.a.", "#n/a", "#na", "#value!", "#div/0!", "-", "--", "\u2013", "\u2014", "..", "...", "\u2026", "?"),
    *("not known", "not stated", "not available", "not recorded", "not applicable", "not collected", "no data"),
    *("#null!", "#num!", "#ref!", "#name?", "\u2212", "\uff0d", "k. a.", "k.a.", "(null)", "<na>", "\\n"),
    *("keine angabe", "non disponible", "no disponible", "não informado", "нет данных", "н/д", "brak danych"),
})  # fmt: skip
"""Words for a missing value in any column, in small letters."""
MISSING_NUMBER = MISSING | {word for word in UNKNOWN if len(word) > 2} | {
    *("na", "nil", "refused", "nd", "n.d.", "nc", "s/d", "abs", "absent", "n.v."),
    *("nk", "n/k", "unk", "dk", "ns", "nr", "n.r.", "s.d.", "tbc", "pending", "- -"),
}  # fmt: skip
"""Further words for a missing value in a column whose other values are numbers or dates."""
_NO_NUMBER = re.compile(
    r"[_:.*\u2026\u00b7/#?\u2012-\u2014-]{1,5} ?\(?[a-z]{0,2}\)?|\[[a-z]{1,3}\]|\([a-z]{1,2}\)|[a-z]"
)
"""Signs and flags without a number in such a column."""


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

    def read(
        self,
        names: Collection[str],
        as_text: Collection[str] = (),
        counts: Collection[str] = (),
        reading: Reading | None = None,
    ) -> pa.Table:
        """Return some columns as numbers, dates or text.

        Columns in ``as_text`` remain text, and so do ``counts``, from which only what surrounds numbers is removed.
        """
        arrays = {}
        for name in names:
            self.notes[name].clear()
            values = self.columns[name]
            if name in counts:
                arrays[name] = pa.array(self._read_counts(name, values), pa.string())
            elif name in as_text:
                arrays[name] = pa.array(self._blank(name, values, MISSING), pa.string())
            else:
                arrays[name] = self._read_values(name, values, reading or Reading())
        return pa.table(arrays)

    def _read_counts(self, name: str, values: list[str | None]) -> list[str | None]:
        values = self._blank(name, values, MISSING)
        texts = list(dict.fromkeys(value for value in values if value is not None))
        plain, repairs = remove_decorations(texts, name, counts=True)
        changed = {text: new for text, new in zip(texts, plain, strict=True) if text != new and is_readable(new)}
        for what, example in repairs.items():
            if changed:
                self.note(f"{what}, as in {example!r}", name)
        return [None if value is None else changed.get(value, value) for value in values]

    def _read_values(self, name: str, values: list[str | None], reading: Reading) -> pa.Array:
        texts = list(dict.fromkeys(value for value in values if value is not None))
        words = {text.casefold() for text in texts if _NO_NUMBER.fullmatch(text.casefold())} | MISSING_NUMBER
        plain = [text for text in texts if text.casefold() not in words]
        found: dict[str, Any] | None = None
        if plain:
            found = self._read_dates(name, plain, reading.dates) or self._read_numbers(name, plain, reading.decimal)
        if found is None:
            return pa.array(self._merge_variants(name, self._blank(name, values, MISSING)), pa.string())
        blank = [None if value is None else found.get(value) for value in self._blank(name, values, words)]
        first = next(iter(found.values()))
        if isinstance(first, datetime):
            kind = pa.timestamp("s") if any(moment.time() != time() for moment in found.values()) else pa.date32()
            return pa.array(blank, pa.timestamp("s")).cast(kind)
        whole = all(number.is_integer() and abs(number) < 2**53 for number in found.values())
        return pa.array(blank, pa.float64()).cast(pa.int64() if whole else pa.float64())

    def _blank(self, name: str, values: list[str | None], words: Collection[str]) -> list[str | None]:
        """Replace words for missing values by None."""
        found = Counter(value for value in values if value is not None and value.casefold() in words)
        if not found:
            return values
        listed = ", ".join(f"{word!r} ({count:,})" for word, count in found.most_common(NAMED))
        self.note(f"words for missing values were read as blank: {listed}", name)
        return [None if value in found else value for value in values]

    def _read_numbers(self, name: str, texts: list[str], decimal: str | None) -> dict[str, Any] | None:
        """Return texts as numbers if all of them are; the decimal separator is inferred from the column."""
        if any(re.fullmatch(r"0\d+", text) for text in texts):
            return None  # a code with leading zeros
        bare, repairs = remove_decorations(texts, name)
        signs = [("%" in text) for text in bare if text.strip("0., %")]  # 0 is 0 with a sign and without one
        readings = _fitting_marks(bare, decimal)
        if not readings or (any(signs) and not all(signs)):
            return None
        ambiguous = len({tuple(cell.low for cell in cells) for cells in readings.values()}) > 1
        expected = "," if self.delimiter == ";" else "."
        if ambiguous and any(re.fullmatch(r"\d{3}", text) for text in bare):
            expected = next((m for m in MARKS if not any(m in text for text in bare)), expected)  # as in 850 and 1.020
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
        for what, example in repairs.items():
            self.note(f"{what}, as in {example!r}", name)
        if bounds := [text for text, cell in zip(texts, cells, strict=True) if cell.kind == BOUNDS]:
            self.note(f"bounds were read as the number in them, as in {list_some(bounds)}", name)
        if any(signs):
            self.note(f"percentages were read as fractions, as in {_example(texts, '%')!r}", name)
        values = [cell.low if isfinite(cell.low) else cell.high for cell in cells]
        if any(signs):
            values = [round(value / 100, cell.decimals + 2) for value, cell in zip(values, cells, strict=True)]
        numbers = dict(zip(texts, values, strict=True))
        if (dates := parse_serials(name, [*numbers.values()])) is not None:
            self.note(f"numbers were read as dates as Excel stores them, {texts[0]!r} as {dates[0]:%Y-%m-%d}", name)
            return dict(zip(texts, dates, strict=True))
        return numbers

    def _read_dates(self, name: str, texts: list[str], order: str | None) -> dict[str, datetime] | None:
        """Return texts as dates if all of them are in the same order of day, month and year."""
        readings, decided = parse_dates(texts, order)
        if readings:
            kind, dates = next(iter(readings.items()))
            if not decided:
                self.note(f"dates such as {texts[0]!r} were read day first, but month first is possible too; use "
                          "--dates month-first if that is right", name)  # fmt: skip
            elif kind != "year first":
                self.note(f"dates were read {kind}, as in {texts[0]!r}", name)
        elif (compact := parse_compact(name, texts)) is not None:
            dates = compact
            self.note(f"numbers of eight digits were read as dates, as in {texts[0]!r}", name)
        else:
            return None
        return dict(zip(texts, dates, strict=True))

    def _merge_variants(self, name: str, values: list[str | None]) -> list[str | None]:
        """Give categories that differ in case, spaces or abbreviation to one letter the most frequent spelling."""
        counts = Counter(value for value in values if value is not None)
        if not 1 < len(counts) <= MAX_CATEGORIES:
            return values
        variants = defaultdict(list)
        for text in sorted(counts, key=lambda text: -counts[text]):
            variants[normalise(text)].append(text)
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


def _fitting_marks(texts: list[str], decimal: str | None) -> dict[str, list[Cell]]:
    """Return the cells by each decimal separator with which all are numbers, apart from a few with one bound."""
    readings = {mark: [read_cell(text, mark) for text in texts] for mark in (MARKS if decimal is None else (decimal,))}
    return {
        mark: cells
        for mark, cells in readings.items()
        if 2 * sum(cell.kind == NUMBER for cell in cells) >= len(cells)
        and all(cell.kind in (NUMBER, BOUNDS) for cell in cells)
        and not any(cell.kind == BOUNDS and isfinite(cell.low + cell.high) for cell in cells)
    }


def _example(texts: list[str], characters: str) -> str:
    return next((text for text in texts if any(character in text for character in characters)), texts[0])
