"""Counts per class, or proportions, of each group, as they were published, checked against the rows of the group."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import torch

from unbag import published
from unbag._utils.problems import Problem, list_some
from unbag.data.columns import Table
from unbag.tables.cells import BOUNDS, NUMBER, UNREADABLE
from unbag.tables.column_roles import SourceColumns
from unbag.tables.count_columns import FULL, CountColumns, read_columns
from unbag.tables.count_rules import DASH, DASHES, broken_rules
from unbag.tables.noise_options import make_noise
from unbag.tables.options import Source
from unbag.tables.values import Refusals, Values


@dataclass(frozen=True, eq=False)
class Options:
    """What may be done about groups that do not fit."""

    how: Source
    missing_members: bool = False
    drop_bad_groups: bool = False


def read_counts(columns: SourceColumns, table: Table, ids: pa.Array, sizes: np.ndarray, options: Options) -> Values:
    """Return a count per class for each group, or a statement about it, or say what is wrong, and in which row.

    Parameters
    ----------
    columns
        Which columns count which class.
    table
        One row per group.
    ids, sizes
        What each group is called, and how many rows it has; groups without rows are not looked at.
    options
        How the counts were published, and what to do about groups that do not fit.
    """
    counts = read_columns(table, columns, options.how, sizes, options.missing_members)
    if isinstance(counts, Problem):
        return Values(None, [counts])
    if problems := _unlike_counts(counts):
        return Values(None, problems)
    refusals = Refusals(table.file, sizes > 0, lambda row: repr(ids[row].as_py()))
    reading = _Reading(counts, ids, options, refusals)
    z = reading.statements()
    if refusals.errors and not options.drop_bad_groups:
        return Values(None, refusals.errors, counts.describe())
    left_out = (sizes > 0) & ~refusals.good
    if not refusals.good.any():
        return Values(None, refusals.errors, counts.describe())
    return Values(z, [*reading.notes, *refusals.as_note()], counts.describe(), left_out)


def _unlike_counts(counts: CountColumns) -> list[Problem]:
    """Say which columns hold no counts at all, and where the unit of the others cannot be found."""
    file, problems = counts.table.file, []
    for name in counts.columns.classes:
        column, kind = counts.table.column(name), counts.cells[name].kind
        readable = np.isin(kind, (NUMBER, BOUNDS))
        if not readable.any() and (kind == UNREADABLE).any():
            example = column[int((kind == UNREADABLE).argmax())].as_py()
            message = (
                f"a column of counts must hold numbers, got {column.type}, for example {str(example)!r}; "
                "if it counts no class, say which columns do with --classes"
            )
            problems.append(Problem("error", message, file, None, name))
    if problems:
        return problems
    percent = counts.stack("percent")
    signs = percent[nonzero := (counts.kind == NUMBER) & (counts.numbers != 0)]  # 0 is 0 with a sign and without one
    if signs.any() and not signs.all():
        usual = bool(signs[0]) if 2 * signs.sum() == len(signs) else bool(2 * signs.sum() > len(signs))
        row, place = np.argwhere(nonzero & (percent != usual))[0].tolist()
        name, has, have = counts.columns.classes[place], *(("no %", "one") if usual else ("a %", "none"))
        message = (
            f"{counts.table.column(name)[row].as_py()!r} has {has}, but {(signs == usual).sum():,} of {len(signs):,} "
            f"numbers have {have}; write all of them alike"
        )
        return [Problem("error", message, file, row + 1, name)]
    if percent.any() and counts.unit != "percentages":
        return [Problem("error", f"numbers have a %, but --unit says that they are {counts.unit}", file)]
    if counts.unit is None:
        sums = counts.numbers.sum(1)[counts.full]
        which = f": the first adds up to {sums[0]:g}" if len(sums) else ""
        return [Problem("error", "the numbers are neither whole counts, nor proportions that add up to 1, nor "
                        f"percentages that add up to 100{which}; say what they are with --unit", file)]  # fmt: skip
    if counts.how.noise is not None and counts.unit != "counts":
        return [Problem("error", f"--noise is about counts, but the numbers are {counts.unit}; write counts", file)]
    return []


@dataclass(eq=False)
class _Reading:
    """From columns to statements, on the way of which groups are refused."""

    counts: CountColumns
    ids: pa.Array
    options: Options
    refusals: Refusals
    notes: list[Problem] = field(default_factory=list)

    def statements(self) -> np.ndarray:
        """Return whole counts, (rows, classes), if nothing else is told; otherwise statements, (rows, classes, 6)."""
        for name, wrong, rule in broken_rules(self.counts):
            self._refuse_cell(name, wrong, rule)
        totals = self._totals()
        low, high = self._bounds(totals)
        missing = totals - self.counts.sizes
        good = self.refusals.good
        noisy = (self.counts.kind == NUMBER) & (self.counts.how.noise is not None)
        low[~good], high[~good], missing[~good], noisy[~good] = 0, 0, 0, False
        if not noisy.any() and not missing.any() and bool((low == high)[good].all()):
            return low.astype(np.int64)
        z = published.between(torch.from_numpy(low), torch.from_numpy(high))
        if noisy.any():
            noise = make_noise(self.counts.how, self._scales())
            values = torch.from_numpy(np.where(noisy, self.counts.numbers, 0.0))
            z = torch.where(torch.from_numpy(noisy)[..., None], published.noisy(values, noise), z)
        if missing.any():
            middle = np.where(noisy, self.counts.numbers, (low + high) / 2).clip(0, totals[:, None])[good].sum(0)
            z = published.with_missing(z, torch.from_numpy(missing), torch.from_numpy(middle / middle.sum()))
        if (open_ := good & ((low < high) & ~noisy).any(1)).any():
            self._note_open(int(open_.sum()), int(good.sum()))
        if missing.any():
            self._note_missing(missing)
        return z.numpy()

    def _name(self, row: int) -> str:
        return f"group {self.ids[row].as_py()!r}"

    def _refuse_cell(self, name: str, wrong: np.ndarray, rule: str) -> None:
        """Refuse the cells of a column that break a rule, which follows what is written there."""
        cells, column = self.counts.cells[name], self.counts.table.column(name)

        def say(row: int) -> str:
            written = column[row].as_py()
            text = f"{cells.low[row]:.10g}" if cells.kind[row] == NUMBER else repr(written or "")
            return f"{text} {DASH if written in DASHES else rule}"

        self.refusals.refuse(wrong, say, name)

    def _totals(self) -> np.ndarray:
        """Return how many members each group has, with and without a row."""
        counts, refuse, sizes = self.counts, self.refusals.refuse, self.counts.sizes
        totals, missing = counts.totals, self.options.missing_members
        if (size := counts.columns.size) is not None:
            cells, column = counts.cells[size], counts.table.column(size)
            half = counts.step / 2 if counts.unit == "counts" else 0.0
            refuse(
                (cells.kind != NUMBER) | (cells.low != np.rint(cells.low)),
                lambda row: f"the size of {self._name(row)} must be a whole number, got {column[row].as_py()!r}",
                size,
            )
            totals = np.where(np.abs(totals - sizes) <= half, sizes, totals)
            refuse(
                totals < sizes,
                lambda row: (
                    f"{self._name(row)} is said to have {totals[row]:g} members, but {sizes[row]} rows name it; sizes "
                    "must not be smaller than that"
                ),
                size,
            )
            if not missing:
                refuse(
                    totals > sizes,
                    lambda row: (
                        f"{self._name(row)} is said to have {totals[row]:g} members, but {sizes[row]} rows name it; if "
                        "the others have no row, say --missing-members"
                    ),
                    size,
                )
        elif missing and counts.unit == "counts" and not counts.how.noise and not counts.step:
            totals = np.where(counts.full, np.maximum(counts.numbers.sum(1), sizes), sizes)
        return totals

    def _bounds(self, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds of all counts that go together, and refuse groups where none do."""
        low, high = self.counts.bounds(totals)
        noisy = (self.counts.kind == NUMBER) & (self.counts.how.noise is not None)
        low, high = np.where(noisy, 0.0, low), np.where(noisy, np.inf, high)
        self._refuse_sums(totals)
        for place, name in enumerate(self.counts.columns.classes):
            self._refuse_bounds(name, self.counts.numbers[:, place], low[:, place], high[:, place], totals)
        low, high = np.maximum(low, 0.0), np.minimum(high, totals[:, None])
        least, most = low.sum(1), high.sum(1)
        self.refusals.refuse(
            (least > totals) | (most < totals),
            lambda row: (
                f"{least[row]:g} to {most[row]:g} members of {self._name(row)} are counted, but it has "
                f"{_members(totals[row])}"
            ),
        )
        others_low, others_high = least[:, None] - low, most[:, None] - high
        return np.maximum(low, totals[:, None] - others_high), np.minimum(high, totals[:, None] - others_low)

    def _refuse_bounds(
        self, name: str, numbers: np.ndarray, low: np.ndarray, high: np.ndarray, totals: np.ndarray
    ) -> None:
        """Refuse bounds of one class, (rows,), that leave no count, or none in a group of its size."""
        self.refusals.refuse(
            low > high,
            lambda row: (
                f"no whole number of {_members(totals[row])} is {numbers[row]:g}, rounded to {self.counts.step:g}; "
                "hand in counts, say --rounded-to if shares are coarser, or check which rows belong to "
                f"{self._name(row)}"
            ),
            name,
        )
        self.refusals.refuse(
            low > totals,
            lambda row: f"{low[row]:g} or more of {self._name(row)} are counted, but it has {_members(totals[row])}",
            name,
        )
        self.refusals.refuse(high < 0, lambda row: f"no count of {self._name(row)} is so small", name)

    def _refuse_sums(self, totals: np.ndarray) -> None:
        """Refuse groups with a number for every class that do not add up."""
        counts, sums = self.counts, self.counts.numbers.sum(1)
        if counts.how.noise is not None:
            return
        if counts.unit in FULL:
            full, k = FULL[counts.unit], len(counts.columns.classes)
            self.refusals.refuse(
                counts.full & (np.abs(sums - full) > k * counts.step / 2 + published.WHOLE),
                lambda row: f"the {counts.unit} of {self._name(row)} add up to {sums[row]:g}, not to {full:g}",
            )
        elif not counts.step:
            has_size = counts.columns.size is not None
            hint = "" if has_size else "; if the others have no row, say --missing-members"
            step = int(np.gcd.reduce(np.abs(np.rint(counts.numbers[counts.kind == NUMBER])).astype(np.int64)))
            rounded = f"; all counts are multiples of {step}: if they are rounded, say --rounded-to {step}"
            self.refusals.refuse(
                counts.full & (sums != totals),
                lambda row: (
                    f"the counts of {self._name(row)} add up to {sums[row]:g}, but it has "
                    f"{_members(totals[row]) if has_size else _rows(counts.sizes[row])}; counted were "
                    f"{list_some(counts.columns.classes)}{hint if sums[row] > counts.sizes[row] else ''}"
                    f"{rounded if step > 2 else ''}"
                ),
            )

    def _scales(self) -> torch.Tensor | None:
        """Return the scales that columns tell, (rows, classes) or (rows, 1); 1 for groups that are not looked at."""
        names = self.counts.columns.scales
        if not names:
            return None
        scales = np.stack([self.counts.cells[name].low for name in names], 1)
        return torch.from_numpy(np.where(self.refusals.good[:, None], scales, 1.0))

    def _note_open(self, n_open: int, n_groups: int) -> None:
        step = self.counts.step
        why = f" (numbers are taken as rounded to {step:g})" if step else ""
        self.notes.append(
            Problem(
                "note",
                f"in {n_open:,} of {n_groups:,} groups more than one count is possible{why}; all of them are weighed",
                self.counts.table.file,
            )
        )

    def _note_missing(self, missing: np.ndarray) -> None:
        groups, members = int((missing > 0).sum()), missing.sum()
        of = f"{groups:,} {'group' if groups == 1 else 'groups'} {'has' if members == 1 else 'have'}"
        self.notes.append(
            Problem(
                "note",
                f"{_members(members)} of {of} no row; classes of such members are taken to follow the shares of all "
                "groups",
                self.counts.table.file,
            )
        )


def _members(count: float) -> str:
    return f"{count:,.0f} {'member' if count == 1 else 'members'}"


def _rows(count: int) -> str:
    return f"{count} {'row' if count == 1 else 'rows'}"
