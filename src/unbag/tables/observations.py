"""Read a file of observations and match it with the rows it is about: groups, what was observed, and all errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.problems import Problem, failing, in_rows, list_some
from unbag.aggregates import Aggregate, Noisy, PublishedCounts
from unbag.aggregates.registry import make_aggregate, parameters
from unbag.data.columns import Table, is_missing
from unbag.data.groups import Groups
from unbag.tables.counts import ColumnRead, ParsedColumns, read_counts
from unbag.tables.ids import (
    count_rows,
    find,
    label_texts,
    make_groups,
    match_members,
    missing_keys,
    repeated,
    shared_keys,
    unmatched_keys,
)
from unbag.tables.options import RELATIONS, Plan, Source
from unbag.tables.roles import InstanceColumns, SourceColumns
from unbag.training import Observations

NO, YES = ("0", "no", "n", "false", "f", "nein"), ("1", "yes", "y", "true", "t", "ja", "j")
"""Words for answers, in small letters."""


@dataclass(frozen=True, eq=False)
class ObservationTable:
    """The observations of one file, as the estimator takes them."""

    columns: SourceColumns
    table: Table
    aggregate: Aggregate
    checked: Observations | None
    """None where errors among the problems do not allow them."""
    source_rows: np.ndarray
    """For each group the row of the file it comes from, from 0."""
    problems: list[Problem]
    turned: np.ndarray | None = None
    """For relations, which pairs have their members in the reverse order of the file."""
    read: list[ColumnRead] = field(default_factory=list)
    """How the columns were read."""

    @property
    def groups(self) -> Groups | None:
        """The groups of rows."""
        return None if self.checked is None else self.checked.groups

    @property
    def z(self) -> Any:
        """What was observed of each group."""
        return None if self.checked is None else self.checked.z.numpy()


@dataclass(frozen=True, eq=False)
class Match:
    """A file of observations and the file of the rows it is about, with the options of the plan and of the file."""

    plan: Plan
    source: Source
    table: Table
    columns: SourceColumns
    instances: Table
    of_instances: InstanceColumns
    classes: tuple[str, ...]

    def parse(self, ids: pa.Array, sizes: np.ndarray) -> ParsedColumns:
        """Return what was observed of each group; groups of size zero are ignored."""
        outcome, column = self.columns.kind.outcome, str(self.columns.observed)
        if outcome in ("class_counts", "published_counts"):
            return read_counts(self.table, self.columns, self.source, self.plan, ids=ids, sizes=sizes)
        if outcome == "yes_no":
            z, problems = _read_answers(self.table, column, "relation" in parameters(self.columns.kind))
            expected = "answer: 1, yes or true, and 0, no or false"
        elif outcome == "class":
            z, problems = _read_classes(self.table, column, self.classes)
            expected = "class"
        else:
            z, problems = _read_numbers(self.table, column, "what was observed")
            expected = "number"
        expected = "relation of ranks" if z is not None and z.dtype == object else expected
        return ParsedColumns(z, problems, [ColumnRead(column, expected, len(self.table))])


def read_observations(match: Match) -> ObservationTable:
    """Match a file of observations with the rows it is about, and collect all errors."""
    columns, table = match.columns, match.table
    ranks = "relation" in parameters(columns.kind)
    relation: Any = match.source.relation or columns.polarity.relation
    with failing(table.file):
        aggregate = make_aggregate(columns.aggregate, match.classes, relation=relation)
    notes = [Problem("note", "this column is not used", table.file, None, name) for name in columns.unused]
    groups, parsed, source_rows, problems = (_match_members if columns.members else _match_groups)(match)
    z, turned = parsed.z, None
    if z is not None and z.ndim == 3 and aggregate.outcome == "class_counts":  # not all counts are known
        aggregate = PublishedCounts()
    if groups is not None and z is not None and z.dtype == object:  # relations, not answers
        aggregate = make_aggregate(columns.aggregate, match.classes, relation="<")
        groups, z, turned = _as_lower(groups, z)
    elif columns.observed is not None:
        notes += columns.polarity.describe(columns.kind, table.file, columns.observed)
        if z is not None and not ranks and columns.is_exchanged:
            z = 1 - z
    of = "a row" if columns.members else "the group"
    read = [*(ColumnRead(name, f"id of {of}", len(table)) for name in columns.keys), *parsed.read]
    checked, weights = None, None
    if columns.error_rate is not None:
        aggregate, rates, description, wrong = _read_error_rates(aggregate, columns, table)
        read.append(description)
        problems += wrong
        if groups is not None and z is not None and rates is not None:
            z = np.stack([z, rates[source_rows]], 1)
    if columns.weight is not None:
        weights, wrong = _read_weights(table, columns.weight)
        problems += wrong
    if groups is not None and not _has_errors(problems):
        try:
            of_groups = None if weights is None else weights[source_rows]
            checked = Observations(aggregate, groups, z, len(match.classes), group_weights=of_groups)
        except (TypeError, ValueError) as error:
            problems.append(Problem("error", str(error), table.file, None, columns.observed))
    if checked is not None:
        used = checked.weights.numpy() > 0
        checked, source_rows = checked.counting(), source_rows[used]
        turned = None if turned is None else turned[used]
    return ObservationTable(columns, table, aggregate, checked, source_rows, [*notes, *problems], turned, read)


Matched = tuple[Groups | None, ParsedColumns, np.ndarray, list[Problem]]
"""Groups, what was observed of them, the rows of the file that they come from, and errors and notes."""


def _match_groups(match: Match) -> Matched:
    """Match observations of groups with the rows that name the groups."""
    table, instances = match.table, match.instances
    group, of_instances = str(match.columns.group), str(match.of_instances.group)
    of_rows, (of_groups,), problems = shared_keys(instances, of_instances, table, [group])
    problems += missing_keys(table, group)
    again, nowhere = repeated(of_groups), is_missing(of_rows)
    problems += in_rows(
        again,
        lambda row: f"group {of_groups[row].as_py()!r} has a row already; keep one row per group",
        table.file,
        group,
    )
    which = find(of_rows, of_groups)  # (rows,) the row of the group in its file
    sizes = np.bincount(which[which >= 0], minlength=len(table))  # (groups,)
    drop = match.plan.drop_unmatched and bool(sizes.any())  # where nothing matches, nothing would be left
    empty = (sizes == 0) & ~is_missing(of_groups) & ~again
    where = f"has no rows in column {of_instances} of {instances.file}"
    problems += unmatched_keys(table, group, of_groups, empty, others=of_rows, where=where, drop=drop)
    where = f"is not in column {group} of {table.file}"
    unknown = (which < 0) & ~nowhere
    problems += unmatched_keys(instances, of_instances, of_rows, unknown, others=of_groups, where=where, drop=drop)
    if nowhere.any():
        rows, first = count_rows(int(nowhere.sum())), f"first row {int(nowhere.argmax()) + 1}"
        problem = Problem("note", f"{rows} left out, {first}", instances.file, None, of_instances, left_out=True)
        if not match.plan.drop_unmatched and len(match.plan.sources) == 1:
            message = f"{rows} without a group, {first}; fill it in, or leave them out with --drop-unmatched"
            problem = Problem("error", message, instances.file, None, of_instances)
        problems.append(problem)
    parsed = match.parse(of_groups, sizes)
    problems += parsed.problems
    if parsed.left_out is not None:
        which = np.where((which >= 0) & parsed.left_out[which], -1, which)
        sizes = np.where(parsed.left_out, 0, sizes)
    kept = np.flatnonzero(sizes > 0)
    if parsed.z is None or _has_errors(problems):
        return None, parsed, kept, problems
    renumbered = np.where(which < 0, -1, np.searchsorted(kept, which))
    groups = make_groups(renumbered, of_groups.take(pa.array(kept)))
    return groups, replace(parsed, z=parsed.z[kept]), kept, problems


def _match_members(match: Match) -> Matched:
    """Match observations of pairs or triplets with the rows that they name by their ids."""
    table, instances, id = match.table, match.instances, str(match.of_instances.id)
    problems = missing_keys(instances, id)
    places, found = match_members(instances, id, table, list(match.columns.members), drop=match.plan.drop_unmatched)
    problems += found
    known = (places >= 0).all(1)
    ordered = np.sort(places, 1)
    problems += in_rows(
        known & (ordered[:, 1:] == ordered[:, :-1]).any(1),
        lambda _: "a row is compared with itself; leave this line out",
        table.file,
    )
    kept = np.flatnonzero(known)
    parsed = match.parse(pa.array(range(1, len(table) + 1)), np.full(len(table), places.shape[1]))
    problems += parsed.problems
    if parsed.left_out is not None:
        kept = kept[~parsed.left_out[kept]]
    if parsed.z is None or _has_errors(problems):
        return None, parsed, kept, problems
    parsed = replace(parsed, z=parsed.z[kept])
    problems += _find_repetitions(places[kept], parsed.z, table, kept)
    return Groups.from_tuples(torch.from_numpy(places[kept]), n_rows=len(instances)), parsed, kept, problems


def _has_errors(problems: list[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def _as_lower(groups: Groups, relations: np.ndarray) -> tuple[Groups, np.ndarray, np.ndarray]:
    """Return pairs, answers to "is the first lower", and which pairs are exchanged: ``>`` and ``<=`` exchange them."""
    pairs = groups.to_tuples().numpy().copy()
    turned = np.isin(relations, [">", "<="])
    pairs[turned] = pairs[turned, ::-1]
    lower = np.isin(relations, ["<", ">"])
    return Groups.from_tuples(torch.from_numpy(pairs), n_rows=groups.n_rows), lower.astype(np.int64), turned


def _find_repetitions(places: np.ndarray, z: Any, table: Table, kept: np.ndarray) -> Iterator[Problem]:
    """Yield warnings of ids that were observed before, with another answer or the same."""
    _, first, which = np.unique(places, axis=0, return_index=True, return_inverse=True)
    earlier = first[which.reshape(-1)]  # (groups,), where the same ids come first
    again = earlier != np.arange(len(places))
    answers = np.unique(z, axis=0 if z.ndim > 1 else None, return_inverse=True)[1].reshape(-1)
    contrary = again & (answers != answers[earlier])
    bad = np.zeros(len(table), dtype=bool)
    bad[kept[contrary]] = True
    message = "an earlier row has another answer for the same ids"
    yield from in_rows(bad, lambda _: message, table.file, severity="warning")
    if same := int((again & ~contrary).sum()):
        rows = "1 row repeats an earlier one, and counts" if same == 1 else f"{same:,} rows repeat others, and count"
        yield Problem("warning", f"{rows} once more", table.file)


Values = tuple[np.ndarray | None, list[Problem]]
"""The values of a column, None if it has errors, and the errors."""


def _read_answers(table: Table, column: str, relations: bool) -> Values:
    """Read a column of 0 and 1, or of relations."""
    given = table.column(column)
    expected = "must be 0 or 1, or yes or no"
    if relations and pa.types.is_string(given.type):
        expected = f"must be one of {' '.join(RELATIONS)}, or 0 and 1 in the whole column"
        values, allowed = pc.utf8_trim_whitespace(given), pa.array(RELATIONS)
    elif pa.types.is_boolean(given.type):
        values, allowed = given.cast(pa.int64()), pa.array([0, 1])
    elif pa.types.is_integer(given.type) or pa.types.is_floating(given.type):
        values, allowed = given.cast(pa.float64(), safe=False), pa.array([0.0, 1.0])
    else:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(given.cast(pa.string())))
        places, allowed = find(words, pa.array([*NO, *YES])), pa.array([0, 1])
        values = pa.array(np.where(places < 0, -1, places >= len(NO)))
    fits = pc.is_in(values, value_set=allowed, skip_nulls=True).to_numpy(zero_copy_only=False)
    missing = is_missing(given)

    def describe(row: int) -> str:
        if missing[row]:
            return f"what was observed is missing; it {expected}"
        return f"what was observed {expected}, got {given[row].as_py()!r}"

    if problems := list(in_rows(~fits, describe, table.file, column)):
        return None, problems
    answers = values.to_numpy(zero_copy_only=False)
    return (answers if answers.dtype == object else answers.astype(np.int64)), []


def _read_classes(table: Table, column: str, classes: tuple[str, ...]) -> Values:
    """Read a column of class names as numbers of classes."""
    texts = label_texts(table, column)
    numbers = find(texts, pa.array(classes))
    problems = in_rows(
        numbers < 0,
        lambda row: f"what was observed must be one of the classes {list_some(classes)}, got {texts[row].as_py()!r}",
        table.file,
        column,
    )
    return (None, errors) if (errors := list(problems)) else (numbers.astype(np.int64), [])


def _read_numbers(table: Table, column: str, what: str, least: float = -np.inf, below: float = np.inf) -> Values:
    """Read a column of numbers in a range, whole ones as int64; ``what`` names them in errors."""
    given = table.column(column)
    numeric = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    numbers = np.full(len(given), np.nan)
    if any(fits(given.type) for fits in numeric):
        numbers = given.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    bounds = f" of at least {least:g}" if least > -np.inf else ""
    bounds += f" and less than {below:g}" if below < np.inf else ""
    problems = in_rows(
        ~(np.isfinite(numbers) & (numbers >= least) & (numbers < below)),
        lambda row: f"{what} must be a number{bounds}, got {given[row].as_py()!r}",
        table.file,
        column,
    )
    if errors := list(problems):
        return None, errors
    return (numbers.astype(np.int64) if (numbers == np.rint(numbers)).all() else numbers), []


def _read_error_rates(
    aggregate: Aggregate, columns: SourceColumns, table: Table
) -> tuple[Aggregate, np.ndarray | None, ColumnRead, list[Problem]]:
    """Return an aggregate of answers that may be wrong, the rates of a column, how it was read, and errors."""
    rate, observed = columns.error_rate, str(columns.observed)
    if rate == "fit" or not isinstance(rate, str):
        how = "at a rate to be fitted" if rate == "fit" else f"at a rate of {rate:g}"
        with failing(table.file):
            aggregate = Noisy(aggregate, rate)  # type: ignore[arg-type]  # refuses rates that are out of range
        return aggregate, None, ColumnRead(observed, f"some are wrong, {how}", len(table)), []
    rates, errors = _read_numbers(table, rate, "a rate of wrong answers", 0, 1)
    return Noisy(aggregate, 0.0), rates, ColumnRead(rate, "rate of wrong answers", len(table)), errors


def _read_weights(table: Table, column: str) -> Values:
    """Read the weights of groups; those of weight zero are left out, with a note."""
    weights, problems = _read_numbers(table, column, "a weight", 0)
    if weights is None:
        return None, problems
    if not weights.any():
        problems.append(Problem("error", "all weights are 0, so that nothing is left", table.file, None, column))
    elif zero := int((weights == 0).sum()):
        message = f"{count_rows(zero)} left out, because the weight is 0"
        problems.append(Problem("note", message, table.file, None, column, left_out=True))
    return weights.astype(np.float64), problems
