"""Target leakage: columns that tell the answer, the row or the group in place of describing an instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import lgamma, log

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.problems import list_some
from unbag.data.columns import as_categories, is_missing
from unbag.data.features import LARGEST, as_numbers
from unbag.diagnostics.tallies import CHANCE, MOST_VALUES, find_coding, find_coding_within, log_orders, once_in
from unbag.published import HIGH, LOW, MISSING
from unbag.tables.ids import codes_of
from unbag.tables.load import LoadedTables
from unbag.tables.observations import ObservationTable

# A measured number may well decide a few bags. So many of either label it does not.
ENOUGH_BAGS = 10
# Columns are looked at side by side, so many numbers at a time.
NUMBERS_AT_ONCE = 2**22
# Of fewer rows, any column may be different in every one.
ENOUGH_ROWS = 10

ANSWERS = (
    *("class", "y", "target", "outcome", "diagnosis", "truth", "label", "true_label", "true_class", "response"),
    *("ground_truth", "answer"),
)
"""What people call the column of the answer."""
COMMON = ("0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "positive", "negative", "pos", "neg")
"""Names of classes that are values of many other columns, too, as whole numbers are."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A feature that may be no feature.

    ``group`` is the number of the group of each row, -1 for none; None where no column tells groups.
    """

    gathered: LoadedTables
    name: str
    group: np.ndarray | None

    @cached_property
    def column(self) -> pa.Array:
        """The values."""
        return self.gathered.instances.column(self.name)

    @cached_property
    def codes(self) -> np.ndarray:
        """A number for each distinct value, -1 where there is none: (rows,)."""
        return np.where(is_missing(self.column), -1, codes_of(self.column))

    def is_unlikely(self, log_chance: float) -> bool:
        """Whether chance would not make any of the columns look like this."""
        return log_chance + log(len(self.gathered.columns.features)) < log(CHANCE)

    def leaks(self) -> Iterator[str]:
        """Yield what the column tells that no feature should, with the numbers behind it."""
        yield from self._class_names()
        for one in self.gathered.observed:
            if one.groups is None:
                continue
            if one.aggregate.outcome in ("class_counts", "published_counts"):
                yield from self._tallies(one)
            else:
                if one.aggregate.size is None and one.aggregate.outcome == "yes_no":
                    yield from self._bags(one)
                yield from self._answers(one)
        yield from self._row_ids()
        yield from self._group_ids()

    def constant_within_groups(self) -> bool:
        """Whether values are the same in all rows of each group; no answer where no group has two rows."""
        if self.group is None:
            return False
        inside = self.group >= 0
        codes, group = self.codes[inside], self.group[inside]
        if len(group) == 0 or len(np.unique(group)) in (1, len(group)):
            return False
        first = np.empty(group.max() + 1, dtype=codes.dtype)
        first[group] = codes
        return bool((codes == first[group]).all())

    def _class_names(self) -> Iterator[str]:
        values = as_categories(self.column).drop_null().unique().to_pylist()
        classes = {_loosely(name) for name in self.gathered.classes}
        if len(values) < 2 or not classes.issuperset(map(_loosely, values)):
            return
        telling = not all(name in COMMON or name.isdecimal() for name in classes)
        if telling or "_".join(self.name.lower().replace("-", " ").split()) in ANSWERS:
            rows = int((self.codes >= 0).sum())
            yield (
                f"{rows:,} of {len(self.codes):,} values are names of classes ({list_some(sorted(values))}), by which "
                f"--label {self.name} would judge"
            )

    def _tallies(self, one: ObservationTable) -> Iterator[str]:
        """Look whether the rows of each value add up to the count of a class in every group."""
        assert one.checked is not None
        groups = one.checked.groups
        codes, sizes = self.codes[groups.members.numpy()], groups.sizes.numpy()
        if one.z.ndim == 2:
            coding = find_coding(codes, sizes, one.z)
        else:
            checked = one.checked.checked.numpy()
            missing = checked[..., MISSING].sum(1, keepdims=True)  # these may be of any class
            coding = find_coding_within(codes, sizes, checked[..., LOW] - missing, checked[..., HIGH])
        if coding is not None and self.is_unlikely(coding.log_chance):
            yield (
                f"its values, counted in each group, {'give' if one.z.ndim == 2 else 'fit'} the counts of the classes "
                f"in all {len(groups):,} groups, as chance does {once_in(coding.log_chance)}"
            )

    def _bags(self, one: ObservationTable) -> Iterator[str]:
        """Look whether the largest or smallest value in a bag, or a value that is in it, decides the label of each."""
        assert one.groups is not None
        members, start = one.groups.members.numpy(), one.groups.offsets.numpy()[:-1]
        yes = np.asarray(one.z, dtype=bool)
        log_chance = -log_orders(torch.from_numpy(yes))  # of all ways to label so many bags, one fits
        if pa.types.is_string(self.column.type):
            values = np.unique(self.codes[members])
            log_chance += log(2 * len(values))  # any of them may be the one, in two ways
            decisive = self._decisive_word(values, self.codes[members], start, yes)
        else:
            log_chance += log(2)
            decisive = self._decisive_number(members, start, yes)
        if decisive is not None and self.is_unlikely(log_chance):
            positive, negative = decisive
            yield (
                f"{positive} in all {yes.sum():,} positive bags and {negative} in all {(~yes).sum():,} negative ones, "
                f"as chance does {once_in(log_chance)}"
            )

    def _decisive_number(self, members: np.ndarray, start: np.ndarray, yes: np.ndarray) -> tuple[str, str] | None:
        """Say what the extreme number of positive and of negative bags is, if it tells them apart."""
        few = min(yes.sum(), (~yes).sum())
        if few == 0 or (few < ENOUGH_BAGS and len(np.unique(self.codes[members])) > 2):
            return None
        numbers = as_numbers(self.column)[members]
        for sign, extreme, least, most in (
            (1, "maximum", "at least", "at most"),
            (-1, "minimum", "at most", "at least"),
        ):
            top = sign * np.fmax.reduceat(
                sign * numbers, start
            )  # (bags,); NaN where all are missing, which decides none
            low, high = sign * (sign * top[yes]).min(), sign * (sign * top[~yes]).max()
            if sign * low > sign * high:
                return f"its {extreme} is {least} {low:g}", f"{most} {high:g}"
        return None

    def _decisive_word(
        self, values: np.ndarray, codes: np.ndarray, start: np.ndarray, yes: np.ndarray
    ) -> tuple[str, str] | None:
        """Name a word that is in all positive bags and no other, or that fills all negative bags and no other."""
        for code in values if 2 <= len(values) <= len(yes) else ():
            inside, alone = (ufunc.reduceat(codes == code, start) for ufunc in (np.logical_or, np.logical_and))
            word = "a missing value" if code < 0 else repr(self.column[int(np.argmax(self.codes == code))].as_py())
            if np.array_equal(inside, yes):
                return f"{word} is", "is not"
            if np.array_equal(~alone, yes):
                return f"{word} is not alone", "is alone"
        return None

    def _answers(self, one: ObservationTable) -> Iterator[str]:
        """Look whether the values, as classes, would give every answer."""
        assert one.groups is not None
        rows = np.unique(one.groups.members.numpy())
        values, n_classes = pc.unique(self.column.take(pa.array(rows))), len(self.gathered.classes)
        if len(values) < 2 or len(values) > n_classes or (self.codes[rows] < 0).any():
            return
        z = torch.as_tensor(one.z)
        # Answers about the same few rows are not independent: there are only so many ways to fill the rows.
        log_chance = log(2) + max(-log_orders(z), -len(rows) * log(len(values)))
        if not self.is_unlikely(log_chance):
            return
        order = values.take(pc.sort_indices(values))
        classes = pc.index_in(self.column, value_set=order).fill_null(0).to_numpy(zero_copy_only=False)
        for labels in (classes, len(values) - 1 - classes):
            seen = one.aggregate.observe(torch.from_numpy(labels.astype(np.int64)), one.groups, n_classes)
            if torch.equal(seen.double(), z.double()):
                yield (
                    f"its {len(values)} values, taken for classes, give all {len(z):,} answers, as chance does "
                    f"{once_in(log_chance)}"
                )
                return

    def _row_ids(self) -> Iterator[str]:
        n, columns = len(self.codes), self.gathered.columns
        key = columns.id
        if key is not None and as_categories(self.gathered.instances.column(key)).equals(as_categories(self.column)):
            yield f"the column is the id of the row, as in column {key}"
            return
        if n < ENOUGH_ROWS or (self.codes < 0).any() or len(np.unique(self.codes)) < n:
            return
        if pa.types.is_string(self.column.type):
            yield f"the column is another text in every one of {n:,} rows, like an id or free text"
        elif not pa.types.is_temporal(self.column.type):
            values = self.column.to_numpy(zero_copy_only=False)
            if not (values == np.rint(values)).all():
                return  # a measured number may well be another in every row
            span = float(values.max()) - float(values.min()) + 1
            # The chance of n different numbers out of so many; if some were more frequent, it would be smaller.
            log_chance = float(np.log1p(-np.arange(n) / span).sum())
            if (np.diff(values) == 1).all():
                yield f"the column is a number that counts the {n:,} rows"
            elif self.is_unlikely(log_chance):
                yield (
                    f"the column is another whole number in every one of {n:,} rows, from {values.min():.0f} to "
                    f"{values.max():.0f}, like an id; chance does so {once_in(log_chance)}"
                )

    def _group_ids(self) -> Iterator[str]:
        key = self.gathered.columns.group
        if key is not None and as_categories(self.gathered.instances.column(key)).equals(as_categories(self.column)):
            yield f"the column is the id of the group, as in column {key}"
            return
        if not self.constant_within_groups():
            return
        assert self.group is not None
        inside = self.group >= 0
        sizes = np.bincount(self.group[inside])
        sizes = sizes[sizes > 0]
        if len(np.unique(self.codes[inside])) < len(sizes):
            return  # groups share values: it describes them
        # Of all orders of these values, those that fill each group with one of them.
        log_chance = sum(lgamma(m + 1) for m in sizes.tolist()) + lgamma(len(sizes) + 1) - lgamma(sizes.sum() + 1)
        if self.is_unlikely(log_chance):
            yield f"the column has one value in each of {len(sizes):,} groups, and another in every group, like its id"


def measured_columns(gathered: LoadedTables, group: np.ndarray | None) -> set[str]:
    """Return features that tell no answer, row or group, because they are measured: all that is slow to look for.

    Numbers that are not whole, none of them missing, that differ within a group and have more values than there are
    classes, groups, and codes to look for; and that do not divide positive from negative bags.
    """
    table, columns = gathered.instances, gathered.columns
    names = [name for name in columns.features if pa.types.is_floating(table.data.schema.field(name).type)]
    if columns.id is not None and pa.types.is_floating(table.data.schema.field(columns.id).type):
        return set()
    fewest = max(MOST_VALUES if group is None else len(np.unique(group)), len(gathered.classes))
    bags = [one for one in gathered.observed if one.aggregate.size is None and one.aggregate.outcome == "yes_no"]
    kept: list[str] = []
    at_once = max(1, NUMBERS_AT_ONCE // max(len(table), 1))
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        values = np.stack([as_numbers(table.column(name)) for name in some], 1)  # (rows, columns)
        ordered = np.sort(values, 0)
        measured = (np.abs(values) <= LARGEST).all(0) & (values != np.rint(values)).any(0)
        measured &= (ordered[1:] != ordered[:-1]).sum(0) >= fewest
        if group is not None and len(group):
            order = np.argsort(group, kind="stable")
            same = group[order[1:]] == group[order[:-1]]
            measured &= (values[order[1:]] != values[order[:-1]])[same].any(0)
        for one in bags:
            measured &= ~_divides_bags(values, one)
        kept += [name for name, is_measured in zip(some, measured, strict=True) if is_measured]
    return set(kept)


def _divides_bags(values: np.ndarray, one: ObservationTable) -> np.ndarray:
    """Return for which columns the maxima or minima of positive bags lie beyond those of all others."""
    if one.groups is None:
        return np.zeros(values.shape[1], dtype=bool)
    members, yes = one.groups.members.numpy(), np.asarray(one.z, dtype=bool)
    if yes.all() or not yes.any():
        return np.zeros(values.shape[1], dtype=bool)
    start = one.groups.offsets.numpy()[:-1]
    top, low = (extreme.reduceat(values[members], start, 0) for extreme in (np.fmax, np.fmin))  # (bags, columns)
    return (top[yes].min(0) > top[~yes].max(0)) | (low[yes].max(0) < low[~yes].min(0))


def _loosely(name: str) -> str:
    return name.strip().casefold()
