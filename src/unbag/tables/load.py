"""Read the files of a plan and match them: rows, observations, classes, and everything that does not fit."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, TableError, fail, failing, in_rows, list_some
from unbag.aggregates import Aggregate, Noisy, PublishedCounts
from unbag.aggregates.class_shares import ClassShares, read_class_shares
from unbag.aggregates.registry import make_aggregate, parameters
from unbag.aggregates.symmetry import find_symmetry, symmetry_of
from unbag.data.columns import Table, as_categories, is_missing
from unbag.data.groups import Groups
from unbag.data.weights import weights_by_answer
from unbag.diagnostics import Context, run_checks
from unbag.tables.cells import NO, YES, label_texts, read_answers, read_classes, read_numbers
from unbag.tables.counts import ColumnRead, read_counts
from unbag.tables.files import ParquetFiles, TableFile, TidyFile, check_output, open_table, state_of_parts, write_output
from unbag.tables.ids import (
    codes_of,
    count_rows,
    find,
    make_groups,
    match_members,
    missing_keys,
    repeated,
    shared_keys,
    unmatched_keys,
)
from unbag.tables.options import Plan, Source
from unbag.tables.roles import InstanceColumns, SourceColumns, columns_of_instances, columns_of_source
from unbag.training import Observations

Labels = tuple[np.ndarray, np.ndarray]  # names of classes, and the rows that have them


@dataclass(frozen=True, eq=False)
class ObservationTable:
    """The observations of one file, as the estimator expects them."""

    source: Source
    columns: SourceColumns
    table: Table
    aggregate: Aggregate
    checked: Observations | None  # None where errors among the problems do not allow them
    source_rows: np.ndarray  # for each group the row of the file it comes from, from 0
    problems: list[Problem]
    turned: np.ndarray | None  # for relations, which pairs have their members in the reverse order of the file
    read: list[ColumnRead]  # how the columns were read

    @property
    def groups(self) -> Groups | None:
        """The groups of rows."""
        return None if self.checked is None else self.checked.groups

    @property
    def z(self) -> Any:
        """The observation of each group."""
        return None if self.checked is None else self.checked.z.numpy()


@dataclass(frozen=True, eq=False)
class LoadedTables:
    """The files of a plan, read and matched."""

    plan: Plan
    instances: Table
    columns: InstanceColumns
    observed: list[ObservationTable]
    classes: tuple[str, ...]
    labels: Labels | None  # true classes, for evaluation
    learned_labels: Labels | None  # classes to learn from
    subjects: np.ndarray | None
    """The number of the subject of each row, ``(rows,)``; a row without a subject has a unique number."""
    problems: list[Problem]
    on_disk: list[tuple[str, int, int]] | None = None
    """Name, size and time of change of each file, if features are not in memory."""

    @cached_property
    def findings(self) -> list[list[Finding]]:
        """What the observations of each file do not identify; empty for observations with errors."""
        shares, known = self.shares, self.learned_labels is not None
        sets = [table.checked.counting() for table in self.observed if table.checked is not None]
        symmetry = find_symmetry(sets) if sets else "none"
        named = shares is not None and shares.identify_classes(symmetry, len(self.instances))
        borders = known or shares is not None or any(table.columns.classes for table in self.observed)
        found = []
        for table in self.observed:
            # If the answer has determined the order, frequencies of answers have no meaning.
            rates = table.source.rates if table.turned is None else {0: 1, 1: 1}
            checked = [] if table.checked is None else [table.checked.counting()]
            named_classes = known or named or symmetry == "none"
            context = Context(
                checked, self.classes, sampling=[rates], classes_named=named_classes, borders_known=borders
            )
            found.append(list(run_checks("observations", context)) if checked else [])
        return found

    @property
    def shares(self) -> ClassShares | None:
        """Known shares of the classes."""
        return None if self.plan.shares is None else read_class_shares(self.plan.shares, np.array(self.classes))

    @property
    def member_rows(self) -> np.ndarray:
        """The rows that are in any group, or labelled to be learned from, from 0, sorted."""
        members = [table.groups.members.numpy() for table in self.observed if table.groups is not None]
        return np.unique(np.concatenate([*members, *([] if self.learned_labels is None else self.learned_labels[1:])]))


def load_tables(plan: Plan, *, in_memory: bool = False) -> LoadedTables:
    """Read the files of a plan and match them; everything that does not fit is among the problems.

    A file that cannot be read and a column that is missing raise :class:`unbag.tables.TableError`. ``in_memory`` reads
    all features. Otherwise rows stay on disk if a folder for them is named, or if Parquet has more than a tenth of the
    memory, because a table in memory takes several times as much as its files; models that need rows in memory get them
    there, unless a folder is named.
    """
    with open_files(plan) as files:
        on_disk = plan.disk is not None
        if isinstance(files[0], ParquetFiles):
            on_disk = on_disk or (plan.training.model != "trees" and files[0].size > memory_size() / 10)
        elif on_disk:
            message = "rows are read piece by piece only from Parquet; write the file in this format"
            raise fail(message, str(plan.instances))
        if in_memory or not on_disk:
            return match_tables(plan, files)
        parts = state_of_parts(plan.instances)
        return replace(match_tables(plan, files, lambda file, keys: file.read(keys, keys)), on_disk=parts)


def memory_size() -> float:
    """Return the number of bytes of memory of the machine; infinity if it is unknown."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@contextmanager
def open_files(plan: Plan) -> Iterator[list[TableFile]]:
    """Open the files of a plan, each once: instances, then observations."""
    paths = (plan.instances, *(source.file for source in plan.sources))
    with ExitStack() as stack:
        yield [stack.enter_context(open_table(path, plan.reading(place))) for place, path in enumerate(paths)]


def match_tables(
    plan: Plan, files: Sequence[TableFile], read: Callable[[TableFile, list[str]], Table] | None = None
) -> LoadedTables:
    """Read the files of a plan that are open, and match them.

    ``read`` reads the columns of ids and classes of the instances, as text; None: all columns are read.
    """
    file, *others = files
    of_instances = columns_of_instances(file.names, plan, [source.names for source in others])
    of_sources: list[SourceColumns] = []
    for source, opened in zip(plan.sources, others, strict=True):
        counted = next((columns.classes for columns in of_sources if columns.classes), plan.classes)
        of_sources.append(columns_of_source(opened.names, source, replace(plan, classes=counted), of_instances))
    roles = {of_instances.id, of_instances.group, of_instances.label, of_instances.subject, plan.names, plan.labelled}
    keys = [name for name in file.names if name in roles]
    if read is None:
        instances = with_categories(file.read(as_text=[*keys, *plan.categorical]), plan.categorical)
    else:
        instances = read(file, keys)
    classes = _find_classes(plan, of_sources, of_instances, instances)
    observed = []
    for source, opened, columns in zip(plan.sources, others, of_sources, strict=True):
        counts = (*columns.classes, *columns.scales, *filter(None, [columns.size]))
        table = opened.read(as_text=columns.keys, counts=counts)
        found = _ObservationReader(plan, source, table, columns, instances, of_instances, classes).read_all()
        observed.append(found)
        if source.rates is not None and found.z is not None:
            with failing(table.file):
                weights_by_answer(source.rates, torch.as_tensor(found.z))
    if plan.shares is not None:
        with failing():
            read_class_shares(plan.shares, np.array(classes))
    if plan.tidied is not None:
        _write_repaired(plan.tidied, files, of_instances, observed)
    problems = [
        *(note for opened in files for note in opened.repairs),
        *(p for table in observed for p in table.problems),
    ]
    # Where classes can be interchanged, labels for evaluation may have names of their own.
    unnamed = all(symmetry_of(table.aggregate, len(classes)) == "any" for table in observed)
    labels = _read_labels(instances, of_instances.label, classes, problems, any_names=unnamed)
    learned = _read_labels(instances, plan.labelled, classes, problems)
    if plan.labelled is not None and learned is None:
        raise fail("no row has a class to learn from", instances.file, None, plan.labelled)
    subjects = None
    if of_instances.subject is not None:
        subjects = codes_of(instances.column(of_instances.subject))
        missing = subjects < 0
        subjects[missing] = subjects.max(initial=-1) + 1 + np.arange(missing.sum())
    return LoadedTables(plan, instances, of_instances, observed, classes, labels, learned, subjects, problems)


def _write_repaired(
    folder: Path, files: Sequence[TableFile], of_instances: InstanceColumns, observed: Sequence[ObservationTable]
) -> None:
    """Write the repaired tables to CSV files in a folder, with ids as they were matched, and a note for each."""
    tables: list[Any] = [file.data if isinstance(file, TidyFile) else None for file in files]
    for place, found in enumerate(observed, 1):
        key = str(of_instances.id if found.columns.members else of_instances.group)
        if all(table is not None for table in (tables[0], tables[place])):
            rows, keys = Table(files[0].path, tables[0]), list(found.columns.keys)
            matched, others, _ = shared_keys(rows, key, Table(files[place].path, tables[place]), keys, loose=True)
            for n, name, ids in ((0, key, matched), *((place, *entry) for entry in zip(keys, others, strict=True))):
                tables[n] = tables[n].set_column(tables[n].column_names.index(name), name, ids)
    folder.mkdir(parents=True, exist_ok=True)
    for number, (file, table) in enumerate(zip(files, tables, strict=True)):
        if table is not None:
            again = any(file.path.stem == earlier.path.stem for earlier in files[:number])  # sheets of one workbook
            out = folder / f"{file.path.stem}{f'-{number + 1}' if again else ''}.csv"
            check_output(out, [other.path for other in files])
            written = Problem("note", f"the repaired table was written to {out}", str(file.path))
            file.repairs = [*file.repairs, *write_output(out, [table]), written]


def with_categories(table: Table, names: Sequence[str]) -> Table:
    """Return a table in which some columns of numbers are text."""
    data = table.data
    for name in names:
        data = data.set_column(table.names.index(name), name, as_categories(table.column(name)))
    return Table(table.path, data)


def _find_classes(
    plan: Plan, sources: Sequence[SourceColumns], of_instances: InstanceColumns, instances: Table
) -> tuple[str, ...]:
    """Return the names of the classes: those of the options, those of the counts, or numbers from 0 on."""
    names = plan.classes or next((source.classes for source in sources if source.classes), None)
    if names is not None and len(set(names)) != len(names):
        raise fail(f"--classes must name different classes, got {', '.join(names)}")
    by_source = {"--n-classes": plan.n_classes, "the names of the classes": len(names) if names else None}
    by_source |= {source.aggregate: source.kind.n_classes for source in sources}
    known = {source: count for source, count in by_source.items() if count is not None}
    if len(set(known.values())) > 1:
        numbers = ", ".join(f"{count} by {source}" for source, count in known.items())
        raise fail(f"the number of classes differs: {numbers}")
    if not known:
        hint = ""
        if column := of_instances.label or plan.labelled or plan.names:
            hint = f"; column {column} has {len(label_texts(instances, column).drop_null().unique())}"
        message = f"{sources[0].aggregate} does not determine the number of classes"
        raise fail(f"{message}; pass it with --n-classes, or name the classes with --classes{hint}")
    count = next(iter(known.values()))
    if count < 2:
        raise fail(f"there must be at least 2 classes, got {count}")
    return tuple(names) if names else tuple(str(number) for number in range(count))


def _read_labels(
    instances: Table, column: str | None, classes: Sequence[str], problems: list[Problem], *, any_names: bool = False
) -> Labels | None:
    """Return the classes of the rows that have one, and these rows; rows with an unknown class join the problems.

    ``any_names`` allows other names than those of the classes, if there are no more.
    """
    if column is None:
        return None
    texts = label_texts(instances, column)
    if list(classes) == ["0", "1"]:
        lower = pc.utf8_lower(texts)
        texts = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", texts))
    missing = is_missing(texts)
    if not (any_names and len(texts.drop_null().unique()) <= len(classes)):
        advice = f"correct it, name the classes with --classes, or omit the column with --exclude {column}"
        rule = f"is none of {list_some(classes)}; {advice}"
        unknown = (find(texts, pa.array(classes)) < 0) & ~missing
        problems += in_rows(unknown, lambda row: f"the class {texts[row].as_py()!r} {rule}", instances.file, column)
    rows = np.flatnonzero(~missing)
    return (np.array(texts.take(pa.array(rows)).to_pylist()), rows) if len(rows) else None


Matched = tuple[Groups, np.ndarray, np.ndarray]
"""Groups, their observations, and the rows of the file that they come from."""


@dataclass(eq=False)
class _ObservationReader:
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
        relation: Any = self.source.relation or columns.relation
        with failing(table.file):
            aggregate = make_aggregate(columns.aggregate, self.classes, relation=relation)
        self.problems += [Problem("note", "this column is not used", table.file, None, name) for name in columns.unused]
        of = "a row" if columns.members else "the group"
        self.read += [ColumnRead(name, f"id of {of}", len(table)) for name in columns.keys]
        matched = self._match_members() if columns.members else self._match_groups()
        turned, checked, kept = None, None, np.arange(0)
        if matched is not None and matched[1].dtype == object:  # relations, not answers
            aggregate = make_aggregate(columns.aggregate, self.classes, relation="<")
            groups, z, turned = _as_lower(*matched[:2])
            matched = groups, z, matched[2]
        elif columns.observed is not None and not self._has_class_names():
            if columns.meaning and columns.kind.column is not None:
                meaning = f"by the name of the column, 1 is read as: {columns.kind.column.meanings[columns.meaning]}"
                self.problems.append(Problem("note", meaning, table.file, None, columns.observed))
            if matched is not None and columns.is_exchanged and "relation" not in parameters(columns.kind):
                matched = matched[0], 1 - matched[1], matched[2]
        if matched is not None and matched[1].ndim == 3 and aggregate.outcome == "class_counts":
            aggregate = PublishedCounts()  # counts that should be exact are constraints
        aggregate, rates = self._read_error_rates(aggregate)
        weights = None if columns.weight is None else self._collect(read_numbers, columns.weight, "a weight", 0)
        if weights is not None and not weights.any():
            message = "all weights are 0, so that nothing is left"
            self.problems.append(Problem("error", message, table.file, None, columns.weight))
        elif weights is not None and (zero := int((weights == 0).sum())):
            message = f"{count_rows(zero)} left out, because the weight is 0"
            self.problems.append(Problem("note", message, table.file, None, columns.weight, left_out=True))
        if matched is not None and not self._has_errors():
            groups, z, kept = matched
            z = z if rates is None else np.stack([z, rates[kept]], 1)
            group_weights = None if weights is None else weights[kept].astype(np.float64)
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
        empty, unknown = (sizes == 0) & ~is_missing(of_groups) & ~again, (which < 0) & ~nowhere
        lack = f"has no rows in column {of_instances} of {instances.file}"
        self.problems += unmatched_keys(table, group, of_groups, empty, others=of_rows, where=lack, drop=drop)
        lack = f"is not in column {group} of {table.file}"
        self.problems += unmatched_keys(
            instances, of_instances, of_rows, unknown, others=of_groups, where=lack, drop=drop
        )
        if nowhere.any():
            rows, first = count_rows(int(nowhere.sum())), f"first row {int(nowhere.argmax()) + 1}"
            problem = Problem("note", f"{rows} left out, {first}", instances.file, None, of_instances, left_out=True)
            if not plan.drop_unmatched and len(plan.sources) == 1:
                message = f"{rows} without a group, {first}; fill it in, or skip such rows with --drop-unmatched"
                problem = Problem("error", message, instances.file, None, of_instances)
            self.problems.append(problem)
        n_dropped = int((unknown | nowhere).sum()) if drop else 0
        if (parsed := self._parse(of_groups, sizes, n_dropped)) is None:
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
        known, ordered = (places >= 0).all(1), np.sort(places, 1)
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
                z = self._collect(read_answers, column, "relation" in parameters(columns.kind), columns.kind.pooled)
                expected = "answer: 1, yes or true, and 0, no or false"
                expected = "relation of ranks" if z is not None and z.dtype == object else expected
            elif outcome in ("yes_no", "class"):
                z, expected = self._collect(read_classes, column, self.classes), "class"
            else:
                z, expected = self._collect(read_numbers, column, "what was observed"), "number"
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
        rate, n = self.columns.error_rate, len(self.table)
        if rate is None:
            return aggregate, None
        if rate == "fit" or not isinstance(rate, str):
            how = "at a rate to be fitted" if rate == "fit" else f"at a rate of {rate:g}"
            with failing(self.table.file):
                aggregate = Noisy(aggregate, rate)  # type: ignore[arg-type]  # refuses rates that are out of range
            self.read.append(ColumnRead(str(self.columns.observed), f"some are wrong, {how}", n))
            return aggregate, None
        rates = self._collect(read_numbers, rate, "a rate of wrong answers", 0, 1)
        self.read.append(ColumnRead(rate, "rate of wrong answers", n))
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
