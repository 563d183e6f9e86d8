"""Target leakage in files: features that contain the label, the row or the group in place of describing an instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from unbag._utils.problems import list_some
from unbag.data.columns import as_categories, is_missing
from unbag.data.features import LARGEST, as_numbers
from unbag.diagnostics.leakage import (
    Column,
    find_answer,
    find_group_id,
    format_odds,
    is_constant_within,
    is_unlikely,
    screen_columns,
)
from unbag.tables.ids import codes_of
from unbag.tables.load import LoadedTables

MIN_ROWS = 10
"""In fewer rows, any column may have a different value in every row."""
NUMBERS_AT_ONCE = 2**22

LABEL_NAMES = (
    *("class", "y", "target", "outcome", "diagnosis", "truth", "label", "true_label", "true_class", "response"),
    *("ground_truth", "answer"),
)
"""Common names of the column of the label."""
COMMON = ("0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "positive", "negative", "pos", "neg")
"""Names of classes that are values of many other columns, too, as whole numbers are."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A feature that may leak."""

    loaded: LoadedTables
    name: str
    group: np.ndarray | None
    """The number of the group of each row, -1 for none; None if there is no column of groups."""

    @cached_property
    def values(self) -> pa.Array:
        """The values."""
        return self.loaded.instances.column(self.name)

    @cached_property
    def codes(self) -> np.ndarray:
        """A number for each distinct value, -1 where there is none: (rows,)."""
        return np.where(is_missing(self.values), -1, codes_of(self.values))

    @cached_property
    def column(self) -> Column:
        """The values as the detector receives them."""
        if not pa.types.is_string(self.values.type):
            return Column.from_numbers(as_numbers(self.values))
        distinct, codes = np.unique(np.where(self.codes < 0, "", self.values.fill_null("")), return_inverse=True)
        return Column(np.where(self.codes < 0, -1, codes), None, distinct)

    def find_leaks(self) -> Iterator[str]:
        """Yield what the column contains that no feature should, with the numbers behind it."""
        n_columns = len(self.loaded.columns.features)
        yield from self._find_class_names()
        for table in self.loaded.observed:
            if table.checked is not None and (found := find_answer(self.column, table.checked, n_columns)):
                yield found
        yield from self._find_row_id()
        if self._equals(self.loaded.columns.group):
            yield f"the column is the id of the group, as in column {self.loaded.columns.group}"
        elif self.group is not None and (found := find_group_id(Column(self.codes), self.group, n_columns)):
            yield found.replace("it has", "the column has", 1)

    def is_constant_within_groups(self) -> bool:
        """Return whether values are the same in all rows of each group."""
        if self.group is None:
            return False
        inside = self.group >= 0
        return is_constant_within(self.codes[inside], self.group[inside])

    def _equals(self, key: str | None) -> bool:
        return key is not None and as_categories(self.loaded.instances.column(key)).equals(as_categories(self.values))

    def _find_class_names(self) -> Iterator[str]:
        values = as_categories(self.values).drop_null().unique().to_pylist()
        classes = {name.strip().casefold() for name in self.loaded.classes}
        if len(values) < 2 or not classes.issuperset(value.strip().casefold() for value in values):
            return
        distinctive = not all(name in COMMON or name.isdecimal() for name in classes)
        if distinctive or "_".join(self.name.lower().replace("-", " ").split()) in LABEL_NAMES:
            names = f"{(self.codes >= 0).sum():,} of {len(self.codes):,} values are names of classes"
            advice = f"if they are labels for evaluation, pass --label {self.name}"
            yield f"{names} ({list_some(sorted(values))}); {advice}"

    def _find_row_id(self) -> Iterator[str]:
        n, key = len(self.codes), self.loaded.columns.id
        if self._equals(key):
            yield f"the column is the id of the row, as in column {key}"
        elif n < MIN_ROWS or (self.codes < 0).any() or len(np.unique(self.codes)) < n:
            return
        elif pa.types.is_string(self.values.type):
            yield f"the column has a different text in every one of {n:,} rows, like an id or free text"
        elif not pa.types.is_temporal(self.values.type):
            values = self.values.to_numpy(zero_copy_only=False)
            if not (values == np.rint(values)).all():
                return  # measured numbers may well differ in all rows
            span = float(values.max()) - float(values.min()) + 1
            # The chance of n different numbers out of so many; if some were more frequent, it would be smaller.
            log_chance = float(np.log1p(-np.arange(n) / span).sum())
            if (np.diff(values) == 1).all():
                yield f"the column is a number that counts the {n:,} rows"
            elif is_unlikely(log_chance, len(self.loaded.columns.features)):
                numbers = f"the column has a different whole number in every one of {n:,} rows"
                span_text = f"from {values.min():.0f} to {values.max():.0f}"
                yield f"{numbers}, {span_text}, like an id; chance does so {format_odds(log_chance)}"


def measured_columns(loaded: LoadedTables, group: np.ndarray | None) -> set[str]:
    """Return features that need no further look.

    They are numbers, not all of them whole, none missing, in which the detector would find nothing.
    """
    table, columns = loaded.instances, loaded.columns
    names = [name for name in columns.features if pa.types.is_floating(table.data.schema.field(name).type)]
    if columns.id is not None and pa.types.is_floating(table.data.schema.field(columns.id).type):
        return set()
    sets = [observed.checked for observed in loaded.observed if observed.checked is not None]
    kept: list[str] = []
    at_once = max(1, NUMBERS_AT_ONCE // max(len(table), 1))
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        values = np.stack([as_numbers(table.column(name)) for name in some], 1)  # (rows, columns)
        measured = (np.abs(values) <= LARGEST).all(0) & (values != np.rint(values)).any(0)
        if sets:
            measured &= ~screen_columns(values, sets)
        if group is not None and len(group):
            order = np.argsort(group, kind="stable")
            same = group[order[1:]] == group[order[:-1]]
            measured &= (values[order[1:]] != values[order[:-1]])[same].any(0)
        kept += [name for name, is_measured in zip(some, measured, strict=True) if is_measured]
    return set(kept)
