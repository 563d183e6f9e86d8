"""Read a file of observations and match it with the rows it is about: groups, observations, and all errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.problems import Problem, TableError, fail, failing, in_rows, list_some, raise_errors
from unbag.aggregates import Aggregate, Noisy
from unbag.aggregates.registry import make_aggregate, parameters
from unbag.data.columns import Table, is_missing
from unbag.data.groups import Groups
from unbag.tables.counts import ColumnRead, aggregate_of_counts, read_counts
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
    """The observations of one file, as the estimator expects them."""

    source: Source
    columns: SourceColumns
    table: Table
    aggregate: Aggregate
    checked: Observations | None
    """None where errors among the problems do not allow them."""
    source_rows: np.ndarray
    """For each group the row of the file it comes from, from 0."""
    problems: list[Problem]
    turned: np.ndarray | None
    """For relations, which pairs have their members in the reverse order of the file."""
    read: list[ColumnRead]
    """How the columns were read."""

    @property
    def groups(self) -> Groups | None:
        """The groups of rows."""
        return None if self.checked is None else self.checked.groups

    @property
    def z(self) -> Any:
        """The observation of each group."""
        return None if self.checked is None else self.checked.z.numpy()


Matched = tuple[Groups, np.ndarray, np.ndarray]
"""Groups, their observations, and the rows of the file that they come from."""


@dataclass(eq=False)
class ObservationReader:
    """Reads a file of observations, matches it with the rows it is about, and collects all errors."""

    plan: Plan
    source: Source
    table: Table
    columns: SourceColumns
    instances: Table
    of_instances: InstanceColumns
    classes: tuple[str, ...]
    problems: list[Problem] = field(default_factory=list)
    read: list[ColumnRead] = field(default_factory=list)

    def read_all(self) -> ObservationTable:
        """Return the observations, or None in their place if there are errors among the problems."""
        columns, table = self.columns, self.table
        relation: Any = self.source.relation or columns.polarity.relation
        with failing(table.file):
            aggregate = make_aggregate(columns.aggregate, self.classes, relation=relation)
        unused = [Problem("note", "this column is not used", table.file, None, name) for name in columns.unused]
        self.problems += unused
        of = "a row" if columns.members else "the group"
        self.read += [ColumnRead(name, f"id of {of}", len(table)) for name in columns.keys]
        matched = self._match_members() if columns.members else self._match_groups()
        turned, checked, kept = None, None, np.arange(0)
        if matched is not None and matched[1].dtype == object:  # relations, not answers
            aggregate = make_aggregate(columns.aggregate, self.classes, relation="<")
            groups, z, turned = _as_lower(*matched[:2])
            matched = groups, z, matched[2]
        elif columns.observed is not None and not self._has_class_names():
            self.problems += columns.polarity.describe(columns.kind, table.file, columns.observed)
            if matched is not None and columns.is_exchanged and "relation" not in parameters(columns.kind):
                matched = matched[0], 1 - matched[1], matched[2]
        if columns.counted and matched is not None:
            aggregate = aggregate_of_counts(aggregate, matched[1])
        aggregate, rates = self._read_error_rates(aggregate)
        weights = None if columns.weight is None else self._collect(_read_weights, columns.weight)
        if weights is not None and (zero := int((weights == 0).sum())):
            message = f"{count_rows(zero)} left out, because the weight is 0"
            self.problems.append(Problem("note", message, table.file, None, columns.weight, left_out=True))
        if matched is not None and not self._has_errors():
            groups, z, kept = matched
            z = z if rates is None else np.stack([z, rates[kept]], 1)
            group_weights = None if weights is None else weights[kept]
            try:
                checked = Observations(aggregate, groups, z, len(self.classes), group_weights=group_weights)
            except (TypeError, ValueError) as error:
                self.problems.append(Problem("error", str(error), table.file, None, columns.observed))
        if checked is not None:
            used = checked.weights.numpy() > 0
            checked, kept = checked.counting(), kept[used]
            turned = None if turned is None else turned[used]
        return ObservationTable(self.source, columns, table, aggregate, checked, kept, self.problems, turned, self.read)

    def _match_groups(self) -> Matched | None:
        """Match observations of groups with the rows that name the groups."""
        table, instances, plan = self.table, self.instances, self.plan
        group, of_instances = str(self.columns.group), str(self.of_instances.group)
        of_rows, (of_groups,), notes = shared_keys(instances, of_instances, table, [group], loose=plan.tidy)
        again, nowhere = repeated(of_groups), is_missing(of_rows)
        if 2 * again.sum() > len(table):  # every other error would be a consequence
            found = f"{len(table):,} rows name only {len(table) - int(again.sum()):,} groups in column {group}"
            advice = "name the file of instances first and the file of groups second, or keep one row per group"
            raise fail(f"{found}; {advice}", table.file)
        message = "group {!r} has a row already; keep one row per group"
        self.problems += [*notes, *missing_keys(table, group)]
        self.problems += in_rows(again, lambda row: message.format(of_groups[row].as_py()), table.file, group)
        which = find(of_rows, of_groups)  # (rows,) the row of the group in its file
        sizes = np.bincount(which[which >= 0], minlength=len(table))  # (groups,)
        drop = plan.drop_unmatched and bool(sizes.any())  # where nothing matches, nothing would be left
        empty = (sizes == 0) & ~is_missing(of_groups) & ~again
        where = f"has no rows in column {of_instances} of {instances.file}"
        self.problems += unmatched_keys(table, group, of_groups, empty, others=of_rows, where=where, drop=drop)
        where = f"is not in column {group} of {table.file}"
        unknown = (which < 0) & ~nowhere
        self.problems += unmatched_keys(
            instances, of_instances, of_rows, unknown, others=of_groups, where=where, drop=drop
        )
        if nowhere.any():
            rows, first = count_rows(int(nowhere.sum())), f"first row {int(nowhere.argmax()) + 1}"
            problem = Problem("note", f"{rows} left out, {first}", instances.file, None, of_instances, left_out=True)
            if not plan.drop_unmatched and len(plan.sources) == 1:
                message = f"{rows} without a group, {first}; fill it in, or skip such rows with --drop-unmatched"
                problem = Problem("error", message, instances.file, None, of_instances)
            self.problems.append(problem)
        n_dropped = int((unknown | nowhere).sum()) if drop else 0
        parsed = self._parse(of_groups, sizes, n_dropped)
        if parsed is None:
            return None
        z, left_out = parsed
        kept = np.flatnonzero((sizes > 0) & ~left_out)
        which[(which >= 0) & left_out[which]] = -1
        renumbered = np.where(which < 0, -1, np.searchsorted(kept, which))
        return make_groups(renumbered, of_groups.take(pa.array(kept))), z[kept], kept

    def _match_members(self) -> Matched | None:
        """Match observations of pairs or triplets with the rows that they name by their ids."""
        table, instances, id = self.table, self.instances, str(self.of_instances.id)
        members, drop = list(self.columns.members), self.plan.drop_unmatched
        places, found = match_members(instances, id, table, members, drop=drop, loose=self.plan.tidy)
        self.problems += [*missing_keys(instances, id), *found]
        known = (places >= 0).all(1)
        ordered = np.sort(places, 1)
        twice = known & (ordered[:, 1:] == ordered[:, :-1]).any(1)
        self.problems += in_rows(twice, lambda _: "a row is compared with itself; delete this line", table.file)
        parsed = self._parse(pa.array(range(1, len(table) + 1)), np.full(len(table), places.shape[1]))
        if parsed is None:
            return None
        z, left_out = parsed
        kept = np.flatnonzero(known & ~left_out)
        self.problems += _find_repetitions(places[kept], z[kept], table, kept)
        return Groups.from_tuples(torch.from_numpy(places[kept]), n_rows=len(instances)), z[kept], kept

    def _parse(self, ids: pa.Array, sizes: np.ndarray, n_dropped: int = 0) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the observation of each group and which groups are left out, unless there are errors."""
        columns, table = self.columns, self.table
        outcome, column, left_out = columns.kind.outcome, str(columns.observed), np.zeros(len(table), dtype=bool)
        z: np.ndarray | None
        if columns.counted:
            counts = read_counts(table, columns, self.source, self.plan, ids=ids, sizes=sizes, n_dropped=n_dropped)
            self.problems += counts.problems
            self.read += counts.read
            z, left_out = counts.z, counts.left_out
        else:
            if outcome == "yes_no" and not self._has_class_names():
                z = self._collect(_read_answers, column, "relation" in parameters(columns.kind), columns.kind.pooled)
                expected = "answer: 1, yes or true, and 0, no or false"
                expected = "relation of ranks" if z is not None and z.dtype == object else expected
            elif outcome in ("yes_no", "class"):
                z, expected = self._collect(_read_classes, column, self.classes), "class"
            else:
                z, expected = self._collect(_read_numbers, column, "what was observed"), "number"
            self.read.append(ColumnRead(column, expected, len(table)))
        return None if z is None or self._has_errors() else (z, left_out)

    def _has_class_names(self) -> bool:
        """Return whether labels of whole groups are names of classes, of which the second is positive."""
        if not self.columns.kind.pooled or not pa.types.is_string(self.table.column(str(self.columns.observed)).type):
            return False
        names = pa.array([name for name in self.classes if name.lower() not in (*NO, *YES)], pa.string())
        return bool((find(label_texts(self.table, str(self.columns.observed)), names) >= 0).any())

    def _read_error_rates(self, aggregate: Aggregate) -> tuple[Aggregate, np.ndarray | None]:
        """Return an aggregate of answers that may be wrong, and the rates of a column."""
        rate, rates = self.columns.error_rate, None
        if rate is None:
            return aggregate, None
        if rate == "fit" or not isinstance(rate, str):
            how = "at a rate to be fitted" if rate == "fit" else f"at a rate of {rate:g}"
            with failing(self.table.file):
                aggregate = Noisy(aggregate, rate)  # type: ignore[arg-type]  # refuses rates that are out of range
            self.read.append(ColumnRead(str(self.columns.observed), f"some are wrong, {how}", len(self.table)))
            return aggregate, None
        rates = self._collect(_read_numbers, rate, "a rate of wrong answers", 0, 1)
        self.read.append(ColumnRead(rate, "rate of wrong answers", len(self.table)))
        return Noisy(aggregate, 0.0), rates

    def _collect(self, read: Any, column: str, *arguments: Any) -> np.ndarray | None:
        """Return the values of a column, or None if there are errors in it, which join the problems."""
        try:
            return read(self.table, column, *arguments)
        except TableError as error:
            self.problems += error.problems
            return None

    def _has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


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


def _read_answers(table: Table, column: str, relations: bool, pooled: bool) -> np.ndarray:
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

    def describe(row: int) -> str:
        if missing[row]:
            return f"the observation is missing; it {expected}"
        return f"the observation {expected}, got {cells[row].as_py()!r}"

    fits = pc.is_in(values, value_set=allowed, skip_nulls=True).to_numpy(zero_copy_only=False)
    raise_errors(in_rows(~fits, describe, table.file, column))
    answers = values.to_numpy(zero_copy_only=False)
    return answers if answers.dtype == object else answers.astype(np.int64)


def _read_classes(table: Table, column: str, classes: tuple[str, ...]) -> np.ndarray:
    """Read a column of class names as numbers of classes."""
    texts = label_texts(table, column)
    numbers = find(texts, pa.array(classes))
    message = f"the observation must be one of the classes {list_some(classes)}, got "
    raise_errors(in_rows(numbers < 0, lambda row: f"{message}{texts[row].as_py()!r}", table.file, column))
    return numbers


def _read_numbers(table: Table, column: str, what: str, least: float = -np.inf, below: float = np.inf) -> np.ndarray:
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


def _read_weights(table: Table, column: str) -> np.ndarray:
    """Read the weights of groups, of which at least one must be positive."""
    weights = _read_numbers(table, column, "a weight", 0)
    if not weights.any():
        raise TableError([Problem("error", "all weights are 0, so that nothing is left", table.file, None, column)])
    return weights.astype(np.float64)


def _is_numeric(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
