"""Parse dates as people write them, in the order of day, month and year that fits a whole column."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

MONTHS = {
    word: number
    for number, words in enumerate((
        "jan ene gen janv januar january janvier enero gennaio januari januari styczeń",
        "feb fév févr fev febr februar february février febrero febbraio februari luty",
        "mar mär mrz mars march märz marzo maart marzec mrt",
        "apr avr abr april avril abril aprile kwiecień",
        "may mai mag mayo maggio mei maj",
        "jun juin giu june juni junio giugno czerwiec",
        "jul juil lug july juli juillet julio luglio lipiec",
        "aug août aou ago august agosto augustus augusti sierpień",
        "sep sept set september septembre septiembre settembre wrzesień",
        "oct okt ott october oktober octobre octubre ottobre październik",
        "nov november novembre noviembre listopad",
        "dec dez déc dic des december dezember décembre diciembre dicembre desember grudzień",
    ), 1)
    for word in words.split()
}  # fmt: skip
ORDERS = {"year first": "ymd", "day first": "dmy", "month first": "mdy"}
_WORD = r"[a-zà-ÿęńśź]{3,11}\.?"
_DATE = re.compile(
    rf"(?:{_WORD},? )?(?P<a>\d{{1,4}}|{_WORD})(?:\.|,|st|nd|rd|th)?[-/. ] ?(?:de )?(?P<b>\d{{1,2}}|{_WORD})"
    r"(?:,|st,|nd,|rd,|th,|\.)?[-/. ] ?(?:de )?(?P<c>\d{4}|\d{1,2})"
    r"(?:(?:[ t]|, )(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?(?: ?(?P<half>[ap])\.?m\.?)?"
    r"(?:z|[+-]00:?00)?)?",
    re.IGNORECASE,
)
_COMPACT = re.compile(r"(?P<a>(?:19|20)\d\d)(?P<b>[01]\d)(?P<c>[0-3]\d)")
_SAS = re.compile(
    rf"(?P<a>\d\d?)(?P<b>{_WORD})(?P<c>\d{{4}}|\d\d)(?::(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d))?)?", re.I
)
_NAMED = re.compile(
    r"date|datum|day\b|dob|birth|born|geb|fecha|fech|nacim|naiss|admi|discharg|arriv|visit|seen|issued|dat[ae]\b", re.I
)
_SERIALS, _EPOCH = range(10_000, 80_000), datetime(1899, 12, 30)
"""Numbers of days, from 1927 to 2119, by which Excel stores dates, and the day before the first."""


def parse_dates(texts: Sequence[str], order: str | None) -> tuple[dict[str, list[datetime]], bool]:
    """Return texts as dates for each order of day, month and year that fits all of them, and whether one is decided.

    ``order`` is day-first or month-first, if it is known.
    """
    readings = {kind: dates for kind in ORDERS if (dates := _parse_all(texts, ORDERS[kind])) is not None}
    wanted = None if order is None else order.replace("-", " ")
    if "year first" not in readings and wanted in readings:
        readings = {wanted: readings[wanted]}
    values = list(readings.values())
    return readings, all(dates == values[0] for dates in values)


def parse_serials(name: str, numbers: Sequence[float]) -> list[datetime] | None:
    """Return the dates of a column that is named like one and has numbers by which Excel stores dates."""
    if not _NAMED.search(name) or not all(number.is_integer() and int(number) in _SERIALS for number in numbers):
        return None
    return [_EPOCH + timedelta(days=number) for number in numbers]


def parse_compact(name: str, texts: Sequence[str]) -> list[datetime] | None:
    """Return the dates of a column of eight digits each, such as 20240131."""
    dates = _parse_all(texts, "ymd", _COMPACT)
    return dates if dates is not None and (_NAMED.search(name) or len(texts) > 4) else None


def _parse_all(texts: Sequence[str], order: str, pattern: re.Pattern[str] = _DATE) -> list[datetime] | None:
    dates = []
    for text in texts:
        match = pattern.fullmatch(text) or (order == "dmy" and _SAS.fullmatch(text)) or None
        date = None if match is None else _parse(match.groupdict(), order)
        if date is None:
            return None
        dates.append(date)
    return dates


def _parse(found: dict[str, str | None], order: str) -> datetime | None:
    parts = [str(found[part]).rstrip(".").casefold() for part in "abc"]
    words = [place for place, part in enumerate(parts) if not part.isdigit()]
    if words and order == "mdy" and words != [0]:
        order = "dmy"  # a month by its name is where it is
    if words and words != [order.index("m")]:
        return None
    fields = dict(zip(order, parts, strict=True))
    if order == "ymd" and len(fields["y"]) != 4:
        return None
    with suppress(ValueError, KeyError):
        year = int(fields["y"])
        if len(fields["y"]) == 2:
            year += 2000 if year < 69 else 1900
        month = MONTHS[fields["m"]] if words else int(fields["m"])
        hour, minute, second = (int(found.get(part) or 0) for part in ("hour", "minute", "second"))
        if half := found.get("half"):
            hour = hour % 12 + 12 * (half.casefold() == "p")
        if len(fields["y"]) in (2, 4) and len(fields["d"]) < 3:
            return datetime(year, month, int(fields["d"]), hour, minute, second)
    return None
