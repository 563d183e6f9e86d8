"""From a file of observations, and the rows it speaks of, to groups and what was observed of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unbag._utils.problems import Problem, failing, in_rows
from unbag.aggregates import Aggregate, Noisy, PublishedCounts
from unbag.aggregates.registry import make_aggregate, parameters
from unbag.data.columns import Table
from unbag.data.groups import Groups
from unbag.tables.answers import NO_WORDS
from unbag.tables.column_roles import SourceColumns
from unbag.tables.grouped import read_grouped
from unbag.tables.join import Match, read_numbers
from unbag.tables.tuples import as_lower, read_tuples
from unbag.tables.values import ColumnRead
from unbag.training import Observations


@dataclass(frozen=True, eq=False)
class Observed:
    """The observations of one file, as the estimator takes them."""

    columns: SourceColumns
    table: Table
    aggregate: Aggregate
    checked: Observations | None
    """Checked; None where errors among the problems do not allow them."""
    source_rows: np.ndarray
    """For each group the row of the file it comes from, from 0."""
    problems: list[Problem]
    turned: np.ndarray | None = None
    """Of relations, for each pair whether its members stand in the other order than in the file."""
    read: list[ColumnRead] = field(default_factory=list)
    """How the columns were read."""

    @property
    def groups(self) -> Groups | None:
        """Which rows form which group."""
        return None if self.checked is None else self.checked.groups

    @property
    def z(self) -> Any:
        """What was observed of each group, as it was read."""
        return None if self.checked is None else self.checked.z.numpy()


def read_observations(match: Match, relation: Any = None) -> Observed:
    """Match a file of observations with the rows it speaks of, and list everything that does not fit.

    ``relation`` is what 1 means for ranks; None: what the name of the column says, or else that the first is lower.
    """
    columns, table = match.columns, match.source
    ranks = "relation" in parameters(columns.kind)
    reading = columns.reading
    with failing(table.file):
        aggregate = make_aggregate(columns.aggregate, match.classes, relation=relation or reading.relation())
    notes = [Problem("note", "this column is not used", table.file, None, name) for name in columns.unused]
    groups, observed, source_rows, problems = (read_tuples if columns.members else read_grouped)(match)
    z, turned = observed.z, None
    if z is not None and z.ndim == 3 and aggregate.outcome == "class_counts":  # not all counts are known
        aggregate = PublishedCounts()
    if groups is not None and z is not None and z.dtype == object:  # relations, not answers
        aggregate = make_aggregate(columns.aggregate, match.classes, relation="<")
        groups, z, turned = as_lower(groups, z)
    elif columns.observed is not None:
        notes += reading.note(columns.kind, table.file, columns.observed)
        if z is not None and not ranks and _is_exchanged(columns):
            z = 1 - z
    read = observed.read
    if columns.error_rate is not None:
        aggregate, rates, wrong = _with_error_rate(aggregate, columns, table)
        problems += wrong
        if wrong:
            groups = None
        elif z is not None and rates is not None:
            z = np.stack([z, rates[source_rows]], 1)
        read = [*read, _say_error_rate(columns, len(table))]
    weights = None
    if columns.weight is not None:
        weights, wrong = _read_weights(table, columns.weight)
        problems += wrong
        if weights is None:
            groups = None
    checked = None
    if groups is not None:
        of_groups = None if weights is None else weights[source_rows]
        try:
            checked = Observations(aggregate, groups, z, len(match.classes), group_weights=of_groups)
        except (TypeError, ValueError) as error:
            problems.append(Problem("error", str(error), table.file, None, columns.observed))
    if checked is not None:
        counts = checked.weights.numpy() > 0
        checked, source_rows = checked.counting(), source_rows[counts]
        turned = None if turned is None else turned[counts]
    of = "a row" if columns.members else "the group"
    read = [*(ColumnRead(name, f"id of {of}", len(table)) for name in columns.keys), *read]
    return Observed(columns, table, aggregate, checked, source_rows, [*notes, *problems], turned, read)


def _with_error_rate(
    aggregate: Aggregate, columns: SourceColumns, table: Table
) -> tuple[Aggregate, np.ndarray | None, list[Problem]]:
    """Return an aggregate whose answers may be wrong, and the rate of each answer, where a column tells it."""
    rate = columns.error_rate
    if rate == "fit" or not isinstance(rate, str):
        with failing(table.file):
            return Noisy(aggregate, rate), None, []  # type: ignore[arg-type]  # Noisy says what is wrong with it
    rates, problems = read_numbers(table, rate, "a rate of wrong answers")
    if rates is not None:
        problems += in_rows(
            ~((rates >= 0) & (rates < 1)),
            lambda row: f"a rate of wrong answers must be from 0 to less than 1, got {table.column(rate)[row].as_py()}",
            file=table.file,
            column=rate,
        )
    return Noisy(aggregate, 0.0), rates, problems


def _say_error_rate(columns: SourceColumns, cells: int) -> ColumnRead:
    """Say how often answers are wrong, as far as it is told."""
    if columns.error_rate == "fit":
        return ColumnRead(str(columns.observed), "some are wrong, at a rate to be fitted", cells)
    if isinstance(columns.error_rate, str):
        return ColumnRead(columns.error_rate, "rate of wrong answers", cells)
    return ColumnRead(str(columns.observed), f"some are wrong, at a rate of {columns.error_rate:g}", cells)


def _read_weights(table: Table, column: str) -> tuple[np.ndarray | None, list[Problem]]:
    """Return the weights of groups, or say which rows hold none; those of weight zero are left out, with a note."""
    weights, problems = read_numbers(table, column, "a weight")
    if weights is None:
        return None, problems
    problems = list(
        in_rows(
            weights < 0,
            lambda row: f"{table.column(column)[row]} is negative; a weight is not, and 0 leaves a group out",
            file=table.file,
            column=column,
        )
    )
    if not weights.any():
        problems.append(Problem("error", "all weights are 0, so that nothing is left", table.file, None, column))
    elif none := int((weights == 0).sum()):
        message = f"{none:,} {'row is' if none == 1 else 'rows are'} left out, because the weight is 0"
        problems.append(Problem("note", message, table.file, None, column, left_out=True))
    return (None if any(one.severity == "error" for one in problems) else weights.astype(np.float64)), problems


def _is_exchanged(columns: SourceColumns) -> bool:
    """Whether 1 stands for what the aggregate calls 0; of triplets, the contrary is about other members instead."""
    contrary = columns.reading.contrary and (columns.kind.column or NO_WORDS).contrary_order is None
    return contrary != columns.reading.negated
