"""Parse cells: numbers as people write them, bounds such as ``<5``, unknown counts, what surrounds numbers, answers."""

import re
from collections.abc import Sequence
from functools import cache
from math import inf, isfinite
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbag._utils.problems import fail, in_rows, list_some, raise_errors
from unbag.data.columns import Table, is_missing
from unbag.tables.ids import find
from unbag.tables.options import RELATIONS

MARKS = (".", ",")  # decimal separators; the other character of the two separates thousands
UNKNOWN = {
    *("", "*", "**", "***", ".", "..", "...", ":", "c", "x", "s", "n/a", "na", "n.a.", "#n/a", "nan", "null", "none"),
    *("suppressed", "confidential", "unknown", "missing", "..c", "..s", "d"),
    *(f"{left}{mark}{right}" for mark in "cdsxuz" for left, right in ("[]", "()")),
}
"""Texts of cells without a count, in small letters."""
DASHES = "\u2012|\u2013|\u2014|\u2212"  # all but the hyphen, as a pattern
MAX_EXAMPLES = 1000  # numbers that are examined for how many decimals a column shows
UNREADABLE, NUMBER, BOUNDS, SUPPRESSED = range(4)

NO, YES = ("0", "no", "n", "false", "f", "nein"), ("1", "yes", "y", "true", "t", "ja", "j")
"""Words for answers, in small letters."""
_OPEN = (("low", -inf), ("high", inf))
_BOUNDS = (
    (r"(?:<|under|below|fewer than|less than) ?(?P<high>.+)", False, True),
    (r"(?:≤|<=|=<|up to|at most) ?(?P<high>.+)", False, False),
    (r"(?P<high>.+?) (?:or less|or fewer)", False, False),
    (r"(?:>|over|above|more than) ?(?P<low>.+)", True, False),
    (r"(?:≥|>=|=>|at least) ?(?P<low>.+)", False, False),
    (r"(?P<low>.+?)(?: ?\+| or more| and more| and over)", False, False),
    (rf"(?P<low>.+?) ?(?:-|{DASHES}|to) ?(?P<high>.+)", False, False),
)
"""How bounds are written; whether the lower and the upper one are not reached."""

_SIGN = r"(?:[€$£¥₹₽]|rs\.?|u?[sr]\$|a\$|c\$|eur|usd|gbp|chf|inr|kr\.?|kč|zł|ft|fr\.)"
_DIGITS = r"[-+\u2212]?(?:\d[\d.,'\u2019 ]*|[.,]\d+)%?"
_FLAGS = {*"abcdefimnpqrstuvz", "est", "est.", "prov", "prov.", "rev", "rev.", "bd", "be", "ep", "br", "de"}
_DECORATIONS = (
    ("currency signs were removed", rf"([-+(]?) ?{_SIGN} ?([-(]?{_DIGITS}-?\)?)", r"\1\2"),
    ("currency signs were removed", rf"(\(?{_DIGITS}\)?-?) ?{_SIGN}", r"\1"),
    ("a minus after the number was moved to its front", rf"({_DIGITS})-", r"-\1"),
    ("signs for approximate numbers were removed", rf"(?:~|≈|±|ca\.?|approx\.?|circa) ?({_DIGITS}(?: %)?)", r"\1"),
    (
        "flags after numbers were removed",
        rf"({_DIGITS}) ?(?:[*†‡§#!^\u00b9\u00b2\u00b3\u2070-\u2079\u1d43-\u1d5f]+|\[[^\]]{{1,6}}\]|\([a-z\d]{{1,3}}\))",
        r"\1",
    ),
)
"""What surrounds numbers: how its removal is reported, its pattern, and what is kept."""
_SUFFIX = re.compile(rf"({_DIGITS}) ?([^\d\s.,'%()<>+-][^\d,()<>+]*\d?)", re.IGNORECASE)
_BRACKETS = re.compile(rf"\( ?({_DIGITS}) ?\)")
_MONEY = re.compile(
    r"balance|saldo|profit|loss|amount|net\b|gain|flow|result|ergebnis|differen[cz]|change|budget", re.I
)


class Cell(NamedTuple):
    """The bounds of a number in one cell, and how it is written."""

    kind: int
    low: float = -inf
    high: float = inf
    above: bool = False  # whether the number is above ``low``, not at it
    below: bool = False
    percent: bool = False
    decimals: int = 0
    separated: bool = False  # whether it has separators of thousands


_RECORD = [*get_type_hints(Cell).items()]  # the fields of a record and their types


def read_cells(column: pa.Array, mark: str = ".") -> Any:
    """Read a column of numbers or of text with a decimal separator, as a record array with the fields of a cell."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        encoded = column.cast(pa.string()).dictionary_encode()
        distinct = [read_cell(text, mark) for text in encoded.dictionary.to_pylist()]
        distinct.append(Cell(SUPPRESSED))  # of missing values, whose place is -1
        records = np.rec.fromrecords(distinct, dtype=_RECORD)
        return records[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    missing = is_missing(column)
    numbers = column.cast(pa.float64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
    cells: Any = np.rec.array(np.zeros(len(numbers), dtype=_RECORD))
    cells.kind = np.select([missing, ~np.isfinite(numbers)], [SUPPRESSED, UNREADABLE], NUMBER)
    cells.low, cells.high = (np.where(cells.kind == NUMBER, numbers, end) for end in (-inf, inf))
    # A column of numbers shows as many decimals as are needed to write them.
    fractions = np.unique(numbers[(cells.kind == NUMBER) & (numbers != np.rint(numbers))])[:MAX_EXAMPLES]
    decimals = [len(np.format_float_positional(number, trim="-").partition(".")[2]) for number in fractions]
    cells.decimals = max(decimals, default=0)
    return cells


def read_cell(text: str, mark: str = ".") -> Cell:
    """Read one cell."""
    plain = " ".join(text.casefold().split())
    if plain in UNKNOWN:
        return Cell(SUPPRESSED)
    percent, plain = "%" in plain, plain.replace("%", "").strip()
    if (number := _read_number(plain, mark)) is not None:
        value, decimals, separated = number
        return Cell(NUMBER, value, value, percent=percent, decimals=decimals, separated=separated)
    for pattern, above, below in _BOUNDS:
        match = re.fullmatch(pattern, plain)
        ends = {name: _read_number(end, mark) for name, end in match.groupdict().items()} if match else {}
        if ends and None not in ends.values():
            low, high = (end[0] if (end := ends.get(name)) else default for name, default in _OPEN)
            return Cell(BOUNDS, low, high, above, below, percent)
    return Cell(UNREADABLE)


@cache
def _pattern(mark: str) -> re.Pattern[str]:
    between = re.escape("".join(set(MARKS) - {mark}))
    indian = r"[1-9]\d?(?:,\d{2})+,\d{3}|" if mark == "." else ""
    whole = rf"{indian}[1-9]\d{{0,2}}(?:{between}\d{{3}})+|[1-9]\d{{0,2}}(?:[ '\u2019]\d{{3}})+|\d+"
    mark = re.escape(mark)
    return re.compile(
        rf"[-+\u2212]? ?(?:(?:{whole})(?:{mark}(?P<after>\d*))?|{mark}(?P<alone>\d+))(?:e(?P<power>[-+]?\d+))?"
    )


def _read_number(text: str, mark: str) -> tuple[float, int, bool] | None:
    """Return a number, how many decimals it shows, and whether thousands are separated, if it is one."""
    match = _pattern(mark).fullmatch(text)
    if match is None:
        return None
    (between,) = set(MARKS) - {mark}
    plain, separators = re.subn(rf"(?<=\d)[{between} '\u2019]", "", text)
    plain = plain.replace(mark, ".").replace("\u2212", "-").replace(" ", "")
    number, shown = float(plain), len(match["after"] or match["alone"] or "")
    return (number, max(0, shown - int(match["power"] or 0)), separators > 0) if isfinite(number) else None


def is_readable(text: str) -> bool:
    """Return whether a text is a number or bounds, with a decimal point or a decimal comma."""
    return any(read_cell(text, mark).kind in (NUMBER, BOUNDS) for mark in MARKS)


def remove_decorations(texts: Sequence[str], name: str, *, counts: bool = False) -> tuple[list[str], dict[str, str]]:
    """Return texts without what surrounds numbers, such as currencies and flags, and an example of each repair.

    Letters after numbers are removed where they are flags of some numbers or the same unit of most. Numbers in brackets
    are negative in accounts; ``counts`` and other whole numbers in brackets are flagged as unreliable.
    """
    repairs: dict[str, str] = {}
    plain = list(texts)

    def replace(what: str, new: list[str]) -> None:
        for place, (text, now, after) in enumerate(zip(texts, plain, new, strict=True)):
            if now != after:
                repairs.setdefault(what, text)
                plain[place] = after

    for what, pattern, kept in _DECORATIONS:
        whole = re.compile(pattern, re.IGNORECASE)
        replace(what, [whole.sub(kept, text).strip() if whole.fullmatch(text) else text for text in plain])
    suffixed = {text: match for text in plain if (match := _SUFFIX.fullmatch(text)) and not is_readable(text)}
    suffixes = {match[2].casefold().strip() for match in suffixed.values()}
    few = len(suffixes) < 4 and 2 * len(suffixed) <= len(plain)
    if suffixes <= _FLAGS and (few or all(re.search(r"\d[.,]\d", text) for text in suffixed)):
        what = "flags after numbers were removed"
    else:
        what = f"the unit {min(suffixes)!r} was removed from numbers"
    if "flags" in what or (len(suffixes) == 1 and 2 * len(suffixed) >= len(plain)):
        replace(what, [suffixed[text][1].strip() if text in suffixed else text for text in plain])
    bracketed = {text: match[1] for text in plain if (match := _BRACKETS.fullmatch(text))}
    accounts = any("currency" in what for what in repairs) or any(re.search(r"[.,]", text) for text in bracketed)
    if (accounts or _MONEY.search(name)) and not counts:
        what, sign = "numbers in brackets were read as negative", "-"
    else:
        what, sign = "brackets, which mark uncertain numbers, were removed", ""
    replace(what, [f"{sign}{bracketed[text]}" if text in bracketed else text for text in plain])
    return plain, repairs


def list_texts(column: pa.Array, where: np.ndarray) -> str:
    """List some of the different texts in cells, as ``blank`` where there is none."""
    texts = column.filter(pa.array(where)).unique().to_pylist()
    named = ["blank" if text is None or not str(text).strip() else repr(str(text)) for text in texts]
    named = list(dict.fromkeys(named))
    return ", ".join(named[:4]) + (", ..." if len(named) > 4 else "")


def label_texts(table: Table, column: str) -> pa.Array:
    """Return labels as text, as class names are: 1.0 is 1."""
    return pc.replace_substring_regex(table.column(column).cast(pa.string()), r"^([0-9]+)\.0+$", r"\1")


def read_answers(table: Table, column: str, relations: bool, pooled: bool) -> np.ndarray:
    """Read a column of 0 and 1, or of relations; labels of bags, which are pooled, may also be names of classes."""
    cells = table.column(column)
    expected, allowed = "must be 0 or 1, or yes or no", pa.array([0.0, 1.0])
    expected += ", or a class of --classes, where the second is positive" if pooled else ""
    if relations and pa.types.is_string(cells.type):
        expected = f"must be one of {' '.join(RELATIONS)}, or 0 and 1 in the whole column"
        values, allowed = pc.utf8_trim_whitespace(cells), pa.array(RELATIONS)
    elif _is_numeric(cells.type):
        values = cells.cast(pa.float64(), safe=False)
    else:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(cells.cast(pa.string())))
        places = find(words, pa.array([*NO, *YES]))
        values = pa.array(np.where(places < 0, -1.0, places >= len(NO)))
    missing = is_missing(cells)
    fits = pc.is_in(values, value_set=allowed, skip_nulls=True).to_numpy(zero_copy_only=False)
    names = cells.drop_null().unique().cast(pa.string()).to_pylist() if pooled and not fits.any() else []
    if len(names) == 2:
        orders = " or ".join(f"--classes {','.join(order)}" for order in (names, names[::-1]))
        message = f"the column has {names[0]!r} and {names[1]!r}; name the classes, the positive one last: {orders}"
        raise fail(message, table.file, None, column)

    def describe(row: int) -> str:
        if missing[row]:
            return f"the observation is missing; it {expected}"
        return f"the observation {expected}, got {cells[row].as_py()!r}"

    raise_errors(in_rows(~fits, describe, table.file, column))
    answers = values.to_numpy(zero_copy_only=False)
    return answers if answers.dtype == object else answers.astype(np.int64)


def read_classes(table: Table, column: str, classes: tuple[str, ...]) -> np.ndarray:
    """Read a column of class names as numbers of classes."""
    texts = label_texts(table, column)
    numbers = find(texts, pa.array(classes))
    message = f"the observation must be one of the classes {list_some(classes)}, got "
    raise_errors(in_rows(numbers < 0, lambda row: f"{message}{texts[row].as_py()!r}", table.file, column))
    return numbers


def read_numbers(table: Table, column: str, what: str, least: float = -np.inf, below: float = np.inf) -> np.ndarray:
    """Read a column of numbers in a range, whole ones as int64; ``what`` names them in errors."""
    cells = table.column(column)
    numbers = np.full(len(cells), np.nan)
    if _is_numeric(cells.type):
        numbers = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    bounds = f" of at least {least:g}" if least > -np.inf else ""
    bounds += f" and less than {below:g}" if below < np.inf else ""
    wrong = ~(np.isfinite(numbers) & (numbers >= least) & (numbers < below))
    message = f"{what} must be a number{bounds}, got "
    raise_errors(in_rows(wrong, lambda row: f"{message}{cells[row].as_py()!r}", table.file, column))
    return numbers.astype(np.int64) if (numbers == np.rint(numbers)).all() else numbers


def _is_numeric(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
