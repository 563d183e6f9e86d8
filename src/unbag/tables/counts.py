"""Counts per class of each group, exact or as published: decimal marks, units, rounding, bounds, blanks and noise."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from unbag import published
from unbag._utils.problems import NAMED, Problem, TableError, fail, in_rows, list_some, raise_errors
from unbag.data.columns import Table
from unbag.published import WHOLE
from unbag.tables.cells import BOUNDS, MARKS, NUMBER, SUPPRESSED, UNREADABLE, list_texts, read_cells
from unbag.tables.options import UNITS, Plan, Source
from unbag.tables.published_files import MAX_SCALE, MIN_SCALE, make_noise
from unbag.tables.roles import SourceColumns

TOTALS = {"proportions": 1.0, "percentages": 100.0}  # sum of the shares of all classes
MIN_MULTIPLES = 20  # number of counts, not 0, that are multiples of a number by chance less than once in 3^20 tables
FEW_MULTIPLES = 4
DASHES = ("-", "\u2013", "\u2014")


class ColumnRead(NamedTuple):
    """How some cells of a column were read."""

    column: str
    read_as: str
    cells: int


class ParsedCounts(NamedTuple):
    """Counts of each group; ``z`` is None where errors among the problems do not allow it."""

    z: np.ndarray | None
    problems: list[Problem]
    read: list[ColumnRead]
    left_out: np.ndarray  # rows of the file whose groups are not learned from, (rows,)


def read_counts(table: Table, columns: SourceColumns, source: Source, plan: Plan, **groups: Any) -> ParsedCounts:
    """Return counts per class, (rows, classes), or constraints on them, (rows, classes, 6), or the errors by row.

    ``groups`` are the ids and sizes of groups and the number of rows that were left out, as of :class:`CountTable`.
    """
    nothing = np.zeros(len(table), dtype=bool)
    try:
        counts = _choose_mark(table, columns, source, missing_members=plan.missing_members, **groups)
        raise_errors(_check_unit(counts))
    except TableError as error:
        return ParsedCounts(None, error.problems, [], nothing)
    z, read = counts.as_array(), counts.describe()
    if (counts.errors and not plan.drop_bad_groups) or not counts.good.any():
        return ParsedCounts(None, counts.errors, read, nothing)
    return ParsedCounts(z, counts.notes(), read, (counts.sizes > 0) & ~counts.good)


class CountTable:
    """The columns of counts in a file, read with one decimal mark, and the errors of groups that no counts satisfy.

    ``ids`` and ``sizes`` are the id and the number of rows of each group, (rows of the file,); groups without rows are
    ignored. ``n_dropped`` is the number of rows of the instances that ``--drop-unmatched`` has left out.
    """

    def __init__(
        self, mark: str, table: Table, columns: SourceColumns, source: Source, *, sizes: np.ndarray, ids: pa.Array,
        missing_members: bool = False, n_dropped: int = 0,
    ) -> None:  # fmt: skip
        self.table, self.columns, self.source, self.sizes, self.mark = table, columns, source, sizes, mark
        self.ids, self.missing_members, self.n_dropped = ids, missing_members, n_dropped
        self.good = sizes > 0  # which groups matter and have no error, (rows,)
        self.errors: list[Problem] = []
        self._notes: list[Problem] = []
        self._dropped: list[str] = []
        names = (*columns.classes, *([columns.size] if columns.size else []), *columns.scales)
        self.cells = {name: read_cells(table.column(name), mark) for name in names}
        self.kind, low, self.percent = map(self.stack, ("kind", "low", "percent"))
        numeric = self.kind == NUMBER
        self.numbers = np.where(numeric, low, 0.0)  # (rows, classes)
        self.noisy = numeric & (source.noise is not None)
        self.full = (sizes > 0) & numeric.all(1)  # the groups with a number for every class
        considered = self.numbers[numeric & (sizes > 0)[:, None]]
        self.is_whole = bool((considered == np.rint(considered)).all())
        self.totals = sizes.astype(float)  # members of each group according to the file, or else its rows
        if columns.size is not None:
            size = self.cells[columns.size]
            self.totals = np.where(size.kind == NUMBER, size.low, sizes)
        self.unit = source.unit or self._infer_unit()
        self.step = self.step_of(str(self.unit))  # numbers are rounded to multiples of this, in their unit; 0: exact

    def stack(self, name: str) -> np.ndarray:
        """Return a field of the cells of all classes, (rows, classes)."""
        return np.stack([getattr(self.cells[column], name) for column in self.columns.classes], 1)

    def _infer_unit(self) -> str | None:
        if self.percent.any():
            return "percentages"
        if self.source.noise is not None:
            return "counts"
        fits = {unit: self.share_adding_up(unit) for unit in UNITS}
        best = max(fits, key=lambda unit: fits[unit])  # of several, the first
        return best if fits[best] > 0.5 else "counts" if self.is_whole else None

    @property
    def has_whole_noise(self) -> bool:
        """Whether the noise moves counts by whole numbers."""
        return make_noise(self.source, 1.0 if self.source.noise_scale else None).is_integral

    def share_adding_up(self, unit: str) -> float:
        """Return the share of the groups with a number for every class whose numbers add up in a unit."""
        if not self.full.any():
            return 0.0
        numbers, totals = self.numbers[self.full], self.totals[self.full]
        room, scale = numbers.shape[1] * self.step_of(unit) / 2, 0.0
        if unit != "counts":
            totals = np.full(len(totals), TOTALS[unit])
        elif self.columns.scales:
            scale = max(self.cells[name].low.max() for name in self.columns.scales)
        elif self.source.noise is not None:
            scale = float(make_noise(self.source).scale)
        room += 25 * numbers.shape[1] * scale
        return float((np.abs(numbers.sum(1) - totals) <= room + WHOLE).mean())

    def score(self) -> tuple[int, float, bool]:
        """Return how well the decimal mark fits, to be compared with another one.

        First counts how many cells are readable, then how many groups add up and have a size near the number of their
        rows, then whether all numbers may be counts of members that have rows, unless some have none.
        """
        size = self.cells[self.columns.size].low if self.columns.size else np.zeros(0)
        unreadable = sum(int((cells.kind == UNREADABLE).sum()) for cells in self.cells.values())
        unreadable += int((np.isfinite(size) & (size != np.rint(size))).sum())
        fit = max(self.share_adding_up(unit) for unit in UNITS)
        if self.columns.size is not None:
            ratio = (self.totals / np.maximum(self.sizes, 1))[self.sizes > 0]
            fit += float(((ratio > 0.1) & (ratio < 10)).mean())
        noisy = self.source.noise is not None
        counted = self.source.unit in (None, "counts") and not self.percent.any() and self.is_whole
        counted = counted and (self.has_whole_noise if noisy else True)
        counted = counted and (self.missing_members or noisy or bool((self.numbers <= self.totals[:, None]).all()))
        return -unreadable, fit if fit > 0.5 else 0.0, counted

    def step_of(self, unit: str) -> float:
        """Return the step of rounding if numbers are of a unit: that of the options, or the last place they show."""
        shown = float(10.0 ** -max(self.cells[name].decimals.max(initial=0) for name in self.columns.classes))
        exact = unit == "counts" or (unit == "proportions" and shown == 1)  # all of a group, or nothing
        return self.source.rounded_to or (0.0 if exact else shown)

    def bounds(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest count that each cell allows, (rows, classes), in groups of some sizes."""
        factor = np.ones(len(totals)) if self.unit == "counts" else np.maximum(totals, 1) / TOTALS[str(self.unit)]
        half = np.where(self.kind == NUMBER, self.step / 2, 0.0)
        low, high = (self.stack("low") - half) * factor[:, None], (self.stack("high") + half) * factor[:, None]
        low = np.where(self.stack("above"), np.floor(low + WHOLE) + 1, np.ceil(low - WHOLE))
        high = np.where(self.stack("below"), np.ceil(high - WHOLE) - 1, np.floor(high + WHOLE))
        suppressed = self.kind == SUPPRESSED
        few = inf if self.source.suppressed_below is None else self.source.suppressed_below - 1
        return np.where(suppressed, 0.0, low), np.where(suppressed, few, high)

    def describe(self) -> list[ColumnRead]:
        """Return how the cells of each column were read."""
        scales, few, n = self.columns.scales, self.source.suppressed_below, len(self.table)
        exact = self.unit == "counts" and not self.step
        meaning = {"counts": "count", "proportions": "proportion", "percentages": "percentage"}[str(self.unit)]
        if self.source.noise is not None:
            scale = f"in column {', '.join(scales)}" if scales else f"{make_noise(self.source).scale:g}"
            meaning += f" with {self.source.noise.partition(':')[0]} noise, scale {scale}"
        else:
            meaning = f"exact {meaning}" if exact else f"{meaning}, rounded to {self.step:g}" if self.step else meaning
        unknown = "unknown, 0 to the size of the group" if few is None else f"below {few}"
        read = []
        for name in self.columns.classes:
            meanings = {NUMBER: meaning + self._describe_marks(name), BOUNDS: "bounds", SUPPRESSED: unknown}
            for kind, what in meanings.items():
                if (cells := self.cells[name].kind == kind).any():
                    texts = "" if kind == NUMBER else f": {list_texts(self.table.column(name), cells)}"
                    read.append(ColumnRead(name, what + texts, int(cells.sum())))
        if (size := self.columns.size) is not None:
            read.append(ColumnRead(size, f"size of the group{self._describe_marks(size)}", n))
        return read + [ColumnRead(name, "scale of the noise", n) for name in scales]

    def _describe_marks(self, name: str) -> str:
        commas = ", decimal commas" if self.mark == "," and self.cells[name].decimals.any() else ""
        return commas + (", thousands separators" if self.cells[name].separated.any() else "")

    def notes(self) -> list[Problem]:
        """Return notes and warnings, and one note in place of errors of groups, which names the groups."""
        if not (count := len(self._dropped)):
            return self._notes
        more = f" and {count - NAMED:,} more" if count > NAMED else ""
        groups = "1 group is" if count == 1 else f"{count:,} groups are"
        message = f"{groups} left out, because of --drop-bad-groups: {', '.join(self._dropped[:NAMED])}{more}"
        return [*self._notes, Problem("note", message, self.table.file, left_out=True)]

    def as_array(self) -> np.ndarray:
        """Return exact counts, (rows, classes), or constraints if not all counts are known, (rows, classes, 6)."""
        self._check_cells()
        totals = self._totals()
        self._check_sums(totals)
        low, high = self._tighten(totals)
        missing, good = totals - self.sizes, self.good
        noisy = self.noisy & good[:, None]
        low[~good], high[~good], missing[~good] = 0, 0, 0
        if not noisy.any() and not missing.any() and bool((low == high)[good].all()):
            self._warn_of_rounding()
            return low.astype(np.int64)
        z = published.between(torch.from_numpy(low), torch.from_numpy(high))
        if noisy.any():
            scales = [np.where(good, self.cells[name].low, 1.0) for name in self.columns.scales]
            noise = make_noise(self.source, torch.from_numpy(np.stack(scales, 1)) if scales else None)
            values = torch.from_numpy(np.where(noisy, self.numbers, 0.0))
            z = torch.where(torch.from_numpy(noisy)[..., None], published.noisy(values, noise), z)
        if missing.any():
            middle = np.where(noisy, self.numbers, (low + high) / 2).clip(0, totals[:, None])[good].sum(0)
            z = published.with_missing(z, torch.from_numpy(missing), torch.from_numpy(middle / middle.sum()))
            which = f"{_count(missing.sum())} of {_count((missing > 0).sum(), 'group')}"
            verb = "has" if missing.sum() == 1 else "have"
            self._note(f"{which} {verb} no row; their classes are assumed to follow the shares of all groups")
        if (several := good & ((low < high) & ~noisy).any(1)).any():
            why = f" (numbers are taken as rounded to {self.step:g})" if self.step else ""
            which = f"in {several.sum():,} of {good.sum():,} groups"
            self._note(f"{which} more than one count is possible{why}; all of them are weighed")
        return z.numpy()

    def _note(self, message: str, severity: Any = "note") -> None:
        self._notes.append(Problem(severity, message, self.table.file))

    def _name(self, row: int) -> str:
        return f"group {self.ids[row].as_py()!r}"

    def _add(self, wrong: np.ndarray, describe: Callable[[int], str], column: str | None = None) -> None:
        """Add an error to the groups where a mask is true, (rows,), unless they have one."""
        wrong = wrong & self.good
        self.good = self.good & ~wrong
        self.errors += in_rows(wrong, describe, self.table.file, column)
        for row in np.flatnonzero(wrong).tolist():
            reason = f" ({describe(row).partition(';')[0]})" if len(self._dropped) < NAMED else ""
            self._dropped.append(f"{self.ids[row].as_py()!r}{reason}")

    def _check_cells(self) -> None:
        """Add the errors of single cells: of counts, and of the scales of noise."""
        rules = [(name, wrong[:, place], rule) for wrong, rule in self._rules_of_counts()
                 for place, name in enumerate(self.columns.classes)]  # fmt: skip
        for name in self.columns.scales:
            kind, scale = self.cells[name].kind, self.cells[name].low
            rule = "is not a scale of noise, which must be a positive number"
            rules.append((name, (kind != NUMBER) | (scale <= 0), rule))
            rule = f"is not a scale of noise on counts; expected {MIN_SCALE:g} to {MAX_SCALE:g}"
            rules.append((name, (scale < MIN_SCALE) | (scale > MAX_SCALE), rule))
        for name, wrong, rule in rules:
            self._add(wrong, partial(self._describe_cell, name, rule), name)

    def _describe_cell(self, name: str, rule: str, row: int) -> str:
        cells, written = self.cells[name], self.table.column(name)[row].as_py()
        if written in DASHES:
            rule = "is 0 in some tables and unknown in others; write 0, or leave the cell blank for unknown"
        return f"{cells.low[row]:.10g} {rule}" if cells.kind[row] == NUMBER else f"{written or ''!r} {rule}"

    def _rules_of_counts(self) -> Iterator[tuple[np.ndarray, str]]:
        """Yield the cells that break a rule, (rows, classes), and the message about them."""
        source, step = self.source, self.source.rounded_to
        kind, numbers, full = self.kind, self.numbers, TOTALS.get(str(self.unit), inf)
        counted, few = self.unit == "counts", source.suppressed_below or 0
        expected = "a number, bounds such as <5, 10+ or 1-4, or where it is unknown one of * .. c x n/a suppressed"
        yield kind == UNREADABLE, f"is not a count; expected {expected}, or nothing"
        yield self.stack("low") > self.stack("high"), "has its bounds in the wrong order; write the lower one first"
        yield numbers > full + self.step / 2, f"is more than {full:g}, which is all of a group"
        correct = "correct it, or name the noise on the counts with --noise"
        if source.noise is not None:
            yield kind == BOUNDS, "gives no information on a count with noise; leave the cell blank"
        else:
            yield numbers < 0, f"is negative; {correct}"
        if self.has_whole_noise if source.noise is not None else counted and step is None:
            advice = "" if source.noise else f"; {correct}"
            yield numbers != np.rint(numbers), f"is not a whole number, as counts are{advice}"
        if counted and step is not None:
            off = np.abs(numbers / step - np.rint(numbers / step)) > WHOLE
            yield off, f"is not a multiple of {step:g}, to which counts are rounded by --rounded-to"
        if counted:
            shown = f"is shown, although counts below {few} are suppressed by --suppressed-below"
            yield (numbers > 0) & (numbers < few), shown

    def _totals(self) -> np.ndarray:
        """Return the number of members of each group, with and without a row."""
        sizes, missing = self.sizes, self.missing_members
        totals, size = self.totals, self.columns.size
        if size is None:
            if missing and self.unit == "counts" and not self.source.noise and not self.step:
                return np.where(self.full, np.maximum(self.numbers.sum(1), sizes), sizes)
            return totals
        cells, column = self.cells[size], self.table.column(size)
        half = self.step / 2 if self.unit == "counts" else 0.0
        message = "the size of {} must be a whole number, got {!r}"
        wrong = (cells.kind != NUMBER) | (cells.low != np.rint(cells.low))
        self._add(wrong, lambda row: message.format(self._name(row), column[row].as_py()), size)
        totals = np.where(np.abs(totals - sizes) <= half, sizes, totals)

        def describe(row: int) -> str:
            advice = "the size cannot be smaller" if totals[row] < sizes[row] else self._advise_on_missing()
            return f"{self._name(row)} has {totals[row]:g} members by this column, but {sizes[row]} rows; {advice}"

        self._add((totals < sizes) | ((totals > sizes) & (not missing)), describe, size)
        return totals

    def _advise_on_missing(self) -> str:
        """Return advice on groups that count more members than they have rows."""
        if not self.n_dropped:
            return "if the others have no row, add --missing-members"
        rows = "1 row was" if self.n_dropped == 1 else f"{self.n_dropped:,} rows were"
        return f"{rows} left out by --drop-unmatched and may belong here; if not, add --missing-members"

    def _tighten(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of counts that add up to the totals; groups without such counts get an error."""
        noisy = self.noisy
        low, high = self.bounds(totals)
        low, high = np.where(noisy, 0.0, low), np.where(noisy, inf, high)

        def describe(place: int, row: int) -> str:
            group, members = self._name(row), _count(totals[row])
            if low[row, place] <= high[row, place]:
                return f"{low[row, place]:g} or more of {group} are counted, but it has {members}"
            rule = f"no whole number of {members} is {self.numbers[row, place]:g}, rounded to {self.step:g}"
            advice = "write counts, add --rounded-to if shares are coarser, or check which rows belong to"
            return f"{rule}; {advice} {group}"

        for place, name in enumerate(self.columns.classes):
            self._add((low > np.minimum(high, totals[:, None]))[:, place], partial(describe, place), name)
            self._add(high[:, place] < 0, lambda row: f"no count of {self._name(row)} is so small", name)
        low, high = np.maximum(low, 0.0), np.minimum(high, totals[:, None])
        least, most = low.sum(1), high.sum(1)
        message = "{:g} to {:g} members of {} are counted, but it has {}"
        self._add(
            (least > totals) | (most < totals),
            lambda row: message.format(least[row], most[row], self._name(row), _count(totals[row])),
        )
        others_low, others_high = least[:, None] - low, most[:, None] - high
        return np.maximum(low, totals[:, None] - others_high), np.minimum(high, totals[:, None] - others_low)

    def _check_sums(self, totals: np.ndarray) -> None:
        """Add errors to groups with a number for every class that do not add up."""
        sums = self.numbers.sum(1)
        if self.source.noise is not None or (self.unit == "counts" and self.step):
            return
        if self.unit in TOTALS:
            full = TOTALS[self.unit]
            room = len(self.columns.classes) * self.step / 2 + WHOLE
            message = f"the {self.unit} of {{}} add up to {{:g}}, not to {full:g}"
            wrong = self.full & (np.abs(sums - full) > room)
            self._add(wrong, lambda row: message.format(self._name(row), sums[row]))
            return
        no_size, wrong, cause = self.columns.size is None, self.full & (sums != totals), ""
        if (step := self._common_divisor()) > 2:
            cause = f"; all counts are multiples of {step}: if they are rounded, add --rounded-to {step}"
        elif wrong.sum() > max(2, self.full.sum() / 2):
            cause = "; if counts were published with noise, describe it with --noise, or name the .published.toml"
            cause += " of the table with --published"

        def describe(row: int) -> str:
            hint = f"; {self._advise_on_missing()}" if no_size and sums[row] > self.sizes[row] else ""
            has = _count(self.sizes[row], "row") if no_size else _count(totals[row])
            found = f"the counts of {self._name(row)} add up to {sums[row]:g}, but it has {has}"
            return f"{found}; counted were {list_some(self.columns.classes)}{hint}{cause}"

        self._add(wrong, describe)

    def _common_divisor(self) -> int:
        """Return the greatest common divisor of all counts; rounded counts that add up look like exact ones."""
        return int(np.gcd.reduce(np.abs(np.rint(self.numbers[self.kind == NUMBER])).astype(np.int64)))

    def _warn_of_rounding(self) -> None:
        step, numbers = self._common_divisor(), int(((self.kind == NUMBER) & (self.numbers > 0)).sum())
        if step > 2 and numbers >= FEW_MULTIPLES and self.unit == "counts" and not self.step:
            message = f"all {numbers:,} counts are multiples of {step}, but they are read as exact"
            advice = f"if they are rounded, add --rounded-to {step}, or name their .published.toml with --published"
            self._note(f"{message}; {advice}", "warning" if numbers >= MIN_MULTIPLES else "note")


def _choose_mark(table: Table, columns: SourceColumns, source: Source, **groups: Any) -> CountTable:
    """Return the counts of a file with the decimal mark that fits better; raise an error if both fit equally well."""
    point, comma = (CountTable(mark, table, columns, source, **groups) for mark in MARKS)
    if source.decimal is not None:
        return point if source.decimal == "." else comma
    scores = point.score(), comma.score()
    fields = ["kind", "low", "high"]
    differ = {name: cells[fields] != comma.cells[name][fields] for name, cells in point.cells.items()}
    rows = np.any([*differ.values()], 0)
    if scores[0] != scores[1] or not rows.any():
        return point if scores[0] >= scores[1] else comma
    row = int(rows.argmax())
    name = next(name for name in differ if differ[name][row])
    readings = " or ".join(f"{counts.cells[name].low[row]:.10g}" for counts in (point, comma))
    message = f"{table.column(name)[row].as_py()!r} may be {readings}, and no other cell decides"
    raise fail(f"{message}; name the decimal separator with --decimal . or --decimal ,", table.file, row + 1, name)


def _check_unit(counts: CountTable) -> Iterator[Problem]:
    """Yield errors of columns without counts, or else of numbers whose unit is unknown or contradictory."""
    file, readable = counts.table.file, True
    for name in counts.columns.classes:
        column, kind = counts.table.column(name), counts.cells[name].kind
        if not np.isin(kind, (NUMBER, BOUNDS)).any() and (kind == UNREADABLE).any():
            readable, example = False, str(column[int((kind == UNREADABLE).argmax())].as_py())
            message = f"a column of counts must contain numbers, got {column.type}, for example {example!r}"
            advice = "if it does not count a class, name the columns of counts with --classes"
            yield Problem("error", f"{message}; {advice}", file, None, name)
    percent, message = counts.percent, ""
    signs = percent[nonzero := (counts.kind == NUMBER) & (counts.numbers != 0)]  # 0 is 0 with a sign and without one
    if not readable:
        return
    if signs.any() and not signs.all():
        usual = 2 * signs.sum() > len(signs)
        row, place = np.argwhere(nonzero & (percent != usual))[0].tolist()
        name = counts.columns.classes[place]
        sign = f"{counts.table.column(name)[row].as_py()!r} has {'no' if usual else 'a'} %"
        message = f"{sign}, unlike {(signs == usual).sum():,} of {len(signs):,} numbers; write all of them alike"
        yield Problem("error", message, file, row + 1, name)
        return
    if percent.any() and counts.unit != "percentages":
        message = f"numbers have a %, but --unit is {counts.unit}"
    elif counts.unit is None:
        sums = counts.numbers.sum(1)[counts.full]
        which = f": the first adds up to {sums[0]:g}" if len(sums) else ""
        units = "neither whole counts, nor proportions that add up to 1, nor percentages that add up to 100"
        message = f"the numbers are {units}{which}; name their unit with --unit"
    elif counts.source.noise is not None and counts.unit != "counts":
        message = f"--noise is about counts, but the numbers are {counts.unit}; write counts"
    if message:
        yield Problem("error", message, file)


def _count(count: Any, noun: str = "member") -> str:
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"
