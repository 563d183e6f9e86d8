"""Columns that tell how many members of a group are of each class: their decimal mark, their unit, their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from unbag._utils.problems import Problem
from unbag.data.columns import Table
from unbag.published import WHOLE
from unbag.tables.cells import BOUNDS, MARKS, NUMBER, UNREADABLE, UNTOLD, Cells, name_texts, read_cells
from unbag.tables.column_roles import SourceColumns
from unbag.tables.noise_options import make_noise
from unbag.tables.options import UNITS, Source
from unbag.tables.values import ColumnRead

ONE = {"counts": "count", "proportions": "proportion", "percentages": "percentage"}
FULL = {"proportions": 1.0, "percentages": 100.0}
"""What the shares of all classes add up to."""


@dataclass(frozen=True, eq=False)
class CountColumns:
    """The columns of counts in a file, read with one decimal mark.

    Parameters
    ----------
    table, columns, how
        The file, what its columns mean, and options on how it was published.
    sizes
        How many rows each group has, (rows of the file,); groups without rows are not looked at.
    mark
        What stands before decimals.
    """

    table: Table
    columns: SourceColumns
    how: Source
    sizes: np.ndarray
    mark: str

    @cached_property
    def cells(self) -> dict[str, Cells]:
        """All columns that hold numbers: classes, sizes, scales."""
        names = (*self.columns.classes, *([self.columns.size] if self.columns.size else []), *self.columns.scales)
        return {name: read_cells(self.table.column(name), self.mark) for name in names}

    def stack(self, name: str) -> np.ndarray:
        """Return a field of the cells of all classes, (rows, classes)."""
        return np.stack([getattr(self.cells[one], name) for one in self.columns.classes], 1)

    @cached_property
    def kind(self) -> np.ndarray:
        """The kind of each cell, (rows, classes)."""
        return self.stack("kind")

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers in cells, (rows, classes); 0 where there is none."""
        return np.where(self.kind == NUMBER, self.stack("low"), 0.0)

    @cached_property
    def full(self) -> np.ndarray:
        """Which groups have a number for every class, (rows,)."""
        return (self.sizes > 0) & (self.kind == NUMBER).all(1)

    @cached_property
    def totals(self) -> np.ndarray:
        """How many members each group has as far as the file tells it, or else how many rows, (rows,)."""
        if self.columns.size is None:
            return self.sizes.astype(float)
        size = self.cells[self.columns.size]
        return np.where(size.kind == NUMBER, size.low, self.sizes)

    @property
    def shown(self) -> float:
        """The last place that numbers are written to, such as 0.1."""
        return float(10.0 ** -max(self.cells[name].decimals for name in self.columns.classes))

    @cached_property
    def unit(self) -> str | None:
        """What classes are told in; None where that cannot be found out."""
        if self.how.unit is not None:
            return self.how.unit
        if bool(self.stack("percent").any()):
            return "percentages"
        if self.how.noise is not None:
            return "counts"
        fits = {name: self.fit(name) for name in UNITS}
        best = max(fits, key=lambda name: fits[name])  # of several, the first
        if fits[best] > 0.5:
            return best
        return "counts" if self.is_whole else None

    @property
    def is_whole(self) -> bool:
        """Whether all numbers of classes are whole."""
        numbers = self.numbers[(self.kind == NUMBER) & (self.sizes > 0)[:, None]]
        return bool((numbers == np.rint(numbers)).all())

    def fit(self, unit: str) -> float:
        """Return in which share of the groups with a number for every class these add up as they do in a unit."""
        if not self.full.any():
            return 0.0
        numbers, totals = self.numbers[self.full], self.totals[self.full]
        k = numbers.shape[1]
        if unit == "counts":
            scales = [self.cells[name].low.max() for name in self.columns.scales]
            if self.how.noise is not None and not scales:
                scales = [float(make_noise(self.how).scale)]
            room = k * (self._step(unit) / 2 + 25 * max(scales, default=0.0))
        else:
            totals = np.full(len(totals), FULL[unit])
            room = k * self._step(unit) / 2
        return float((np.abs(numbers.sum(1) - totals) <= room + WHOLE).mean())

    def fit_sizes(self) -> float:
        """Return in which share of the groups the size that is told is like the number of rows."""
        if self.columns.size is None:
            return 0.0
        there = self.sizes > 0
        ratio = self.totals[there] / self.sizes[there]
        return float(((ratio > 0.1) & (ratio < 10)).mean())

    @property
    def step(self) -> float:
        """To which multiples numbers are taken to be rounded, in their unit; 0: they are not."""
        assert self.unit is not None
        return self._step(self.unit)

    def _step(self, unit: str) -> float:
        exact = unit == "counts" or (unit == "proportions" and self.shown == 1)  # all of a group, or nothing
        return self.how.rounded_to or (0.0 if exact else self.shown)

    def bounds(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest count that each cell leaves possible, (rows, classes).

        Parameters
        ----------
        totals
            How many members each group has, (rows,).
        """
        assert self.unit is not None
        factor = np.ones(len(totals)) if self.unit == "counts" else np.maximum(totals, 1) / FULL[self.unit]
        half = np.where(self.kind == NUMBER, self.step / 2, 0.0)
        low, high = (self.stack("low") - half) * factor[:, None], (self.stack("high") + half) * factor[:, None]
        low = np.where(self.stack("above"), np.floor(low + WHOLE) + 1, np.ceil(low - WHOLE))
        high = np.where(self.stack("below"), np.ceil(high - WHOLE) - 1, np.floor(high + WHOLE))
        untold = self.kind == UNTOLD
        few = inf if self.how.suppressed_below is None else self.how.suppressed_below - 1
        return np.where(untold, 0.0, low), np.where(untold, few, high)

    def describe(self) -> list[ColumnRead]:
        """Return how the cells of each column were read."""
        assert self.unit is not None
        counted = ONE[self.unit]
        if self.how.noise is not None:
            scales = self.columns.scales
            scale = f"in column {', '.join(scales)}" if scales else f"{make_noise(self.how).scale:g}"
            counted += f" with {self.how.noise.partition(':')[0]} noise, scale {scale}"
        elif self.step:
            counted += f", rounded to {self.step:g}"
        few = self.how.suppressed_below
        read = []
        for name in self.columns.classes:
            column, kind = self.table.column(name), self.cells[name].kind
            untold = name_texts(column, kind == UNTOLD)
            for what, meaning in (
                (NUMBER, counted + self._marks(name)),
                (BOUNDS, f"bounds: {name_texts(column, kind == BOUNDS)}"),
                (UNTOLD, f"unknown, 0 to the size of the group: {untold}" if few is None else f"below {few}: {untold}"),
            ):
                if cells := int((kind == what).sum()):
                    read.append(ColumnRead(name, meaning, cells))
        if self.columns.size is not None:
            meaning = f"size of the group{self._marks(self.columns.size)}"
            read.append(ColumnRead(self.columns.size, meaning, len(self.table)))
        return read + [ColumnRead(name, "scale of the noise", len(self.table)) for name in self.columns.scales]

    def _marks(self, name: str) -> str:
        commas = self.mark == "," and self.cells[name].decimals > 0
        thousands = ", thousands set apart" if self.cells[name].separated else ""
        return (", decimal commas" if commas else "") + thousands

    @cached_property
    def other(self) -> CountColumns:
        """The same columns, read with the other decimal mark."""
        (mark,) = set(MARKS) - {self.mark}
        return CountColumns(self.table, self.columns, self.how, self.sizes, mark)

    def differ(self, other: CountColumns) -> np.ndarray:
        """Return which rows are read otherwise, (rows,)."""
        return np.any([one.differ(other.cells[name]) for name, one in self.cells.items()], 0)

    @property
    def n_unreadable(self) -> int:
        """How many cells hold nothing that is understood, or no whole number where the size of a group stands."""
        size = self.cells[self.columns.size].low if self.columns.size else np.zeros(0)
        broken = np.isfinite(size) & (size != np.rint(size))
        return sum(int((one.kind == UNREADABLE).sum()) for one in self.cells.values()) + int(broken.sum())

    def may_count(self, missing_members: bool) -> bool:
        """Whether all numbers of classes may be counts: whole, and of members that have rows, unless some have none."""
        if self.how.unit not in (None, "counts") or self.stack("percent").any():
            return False
        noisy = self.how.noise is not None
        if noisy and not make_noise(self.how, 1.0 if self.how.noise_scale else None).is_integral:
            return False
        return self.is_whole and (missing_members or noisy or bool((self.numbers <= self.totals[:, None]).all()))


def read_columns(
    table: Table, columns: SourceColumns, how: Source, sizes: np.ndarray, missing_members: bool = False
) -> CountColumns | Problem:
    """Return the columns of counts of a file, or say that two decimal marks make sense.

    The mark is the one with which more cells are readable, or else more groups add up, or else all may be counts.
    """
    point = CountColumns(table, columns, how, sizes, how.decimal or ".")
    if how.decimal is not None:
        return point
    comma = point.other
    if point.n_unreadable != comma.n_unreadable:
        return min(point, comma, key=lambda one: one.n_unreadable)
    differ = point.differ(comma)
    if not differ.any():
        return point
    fits = [max(one.fit(unit) for unit in UNITS) + one.fit_sizes() for one in (point, comma)]
    if fits[0] != fits[1] and max(fits) > 0.5:
        return point if fits[0] > fits[1] else comma
    if len(counts := [one for one in (point, comma) if one.may_count(missing_members)]) == 1:
        return counts[0]
    row = int(differ.argmax())
    name, one = next((name, one) for name, one in point.cells.items() if one.differ(comma.cells[name])[row])
    readings = f"{one.low[row]:.10g} or {comma.cells[name].low[row]:.10g}"
    return Problem(
        "error",
        f"{table.column(name)[row].as_py()!r} may be {readings}, and no other cell decides; say what stands before "
        "decimals with --decimal . or --decimal ,",
        table.file,
        row + 1,
        name,
    )
