"""Load the files of a plan and match them: rows, observations, classes, and everything that does not fit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, fail, failing, in_rows, list_some
from unbag.aggregates.class_shares import ClassShares, read_class_shares
from unbag.aggregates.symmetry import Symmetry, find_symmetry, symmetry_of
from unbag.data.columns import Table, as_categories, is_missing
from unbag.diagnostics import Context, run_checks
from unbag.diagnostics.sampling import weights_by_answer
from unbag.tables.counts import CountOptions
from unbag.tables.files import ParquetFiles, TableFile, open_table, state_of_parts
from unbag.tables.ids import codes_of, find, label_texts
from unbag.tables.observations import Match, ObservationTable, read_observations
from unbag.tables.options import Plan
from unbag.tables.roles import InstanceColumns, SourceColumns, columns_of_instances, columns_of_source
from unbag.training import Observations


@dataclass(frozen=True, eq=False)
class LoadedTables:
    """The files of a plan, read and matched."""

    plan: Plan
    instances: Table
    columns: InstanceColumns
    observed: list[ObservationTable]
    classes: tuple[str, ...]
    labels: np.ndarray | None
    """True classes by name, of the labelled rows."""
    labelled_rows: np.ndarray | None
    learned_labels: tuple[np.ndarray, np.ndarray] | None
    """Classes by name that are learned from, and the rows they are of."""
    subjects: np.ndarray | None
    """The number of the subject of each row, ``(rows,)``; a row without a subject has a number of its own."""
    problems: list[Problem]
    on_disk: list[tuple[str, int, int]] | None = None
    """Where features were left in their files, these, as they were before any was read."""

    @cached_property
    def findings(self) -> list[list[Finding]]:
        """What the observations of each file cannot tell; nothing of those that errors do not allow."""
        return [
            [] if one.checked is None else self._diagnose(one, one.checked, source.rates)
            for one, source in zip(self.observed, self.plan.sources, strict=True)
        ]

    def _diagnose(self, one: ObservationTable, checked: Observations, rates: Any) -> list[Finding]:
        if one.turned is not None:  # an order that was chosen by the answer: how frequent answers are says nothing
            rates = {0: 1, 1: 1}
        shares, symmetry = self.shares, self._symmetry
        named = shares is not None and shares.tell(symmetry, len(self.instances))
        counted = any(other.columns.classes for other in self.observed)
        known = self.learned_labels is not None
        context = Context(
            [checked.counting()],
            self.classes,
            sampling=[rates],
            classes_named=known or named or symmetry == "none",
            borders_known=known or counted or shares is not None,
        )
        return run_checks("observations", context)

    @cached_property
    def _symmetry(self) -> Symmetry:
        return find_symmetry([one.checked.counting() for one in self.observed if one.checked is not None])

    @property
    def shares(self) -> ClassShares | None:
        """Known shares of the classes."""
        return None if self.plan.shares is None else read_class_shares(self.plan.shares, np.array(self.classes))

    @property
    def member_rows(self) -> np.ndarray:
        """The rows that are in any group, or labelled to be learned from, from 0, sorted."""
        members = [one.groups.members.numpy() for one in self.observed if one.groups is not None]
        return np.unique(np.concatenate([*members, *([] if self.learned_labels is None else self.learned_labels[1:])]))


def load_tables(plan: Plan, *, in_memory: bool = False) -> LoadedTables:
    r"""Read the files of a plan and match them; what does not fit is among the problems.

    A file that cannot be read, or a column that is not there, raises :class:`unbag.tables.TableError`, because nothing
    that follows would make sense. ``in_memory`` reads features wherever they are; otherwise large ones stay on disk.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from unbag.tables.plan import make_plan
    >>> folder = Path(tempfile.mkdtemp())
    >>> people, wards = folder / "people.csv", folder / "wards.csv"
    >>> _ = people.write_text("ward,age\nnorth,31\nnorth,45\nsouth,62\n")
    >>> _ = wards.write_text("ward,ill,well\nnorth,1,1\nsouth,0,2\n")
    >>> loaded = load_tables(make_plan({"instances": people, "groups": wards}))
    >>> loaded.classes, gathered.observed[0].columns.aggregate
    (('ill', 'well'), 'label_proportions')
    >>> print(loaded.problems[0].message)  # doctest: +ELLIPSIS
    the counts of group 'south' add up to 2, but it has 1 row; counted were 'ill', 'well'; if the others ...
    """
    with open_files(plan) as files:
        if in_memory or not is_on_disk(plan, files[0]):
            return match_tables(plan, files)
        parts = state_of_parts(plan.instances)
        return replace(match_tables(plan, files, _read_keys), on_disk=parts)


def is_on_disk(plan: Plan, instances: TableFile) -> bool:
    """Whether rows stay on disk: where a folder for them is named, or Parquet takes more than a tenth of the memory.

    A table in memory takes several times as much as its files. Models that need rows in memory get them there, unless a
    folder is named.
    """
    if plan.disk is not None:
        if not isinstance(instances, ParquetFiles):
            raise fail("rows are read piece by piece from Parquet alone; write the file as such", str(instances.path))
        return True
    if not isinstance(instances, ParquetFiles) or plan.training.model == "trees":
        return False
    return instances.size > memory_size() / 10


def memory_size() -> float:
    """Return how many bytes of memory the machine has; where it does not say, no table is too large."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@contextmanager
def open_files(plan: Plan) -> Iterator[list[TableFile]]:
    """Open the files of a plan, each once: instances, then observations."""
    with ExitStack() as stack:
        yield [stack.enter_context(open_table(path)) for path in (plan.instances, *(one.file for one in plan.sources))]


def match_tables(
    plan: Plan, files: Sequence[TableFile], read: Callable[[TableFile, list[str]], Table] | None = None
) -> LoadedTables:
    """Read the files of a plan that are open, and match them.

    ``read`` reads the columns of ids and classes of the instances, as text; None: all columns are read.
    """
    file, *files = files
    of_instances = columns_of_instances(file.names, plan, [one.names for one in files])
    of_sources: list[SourceColumns] = []
    for source, own in zip(plan.sources, files, strict=True):
        counted = next((one.classes for one in of_sources if one.classes), None)
        within = replace(plan, classes=counted) if counted else plan
        of_sources.append(columns_of_source(own.names, source, within, of_instances))
    of_rows = (of_instances.id, of_instances.group, of_instances.label, of_instances.subject)
    named = {*of_rows, plan.names, plan.labelled}
    keys = [name for name in file.names if name in named]
    if read is None:
        instances = with_categories(file.read(as_text=[*keys, *plan.categorical]), plan.categorical)
    else:
        instances = read(file, keys)
    classes = _classes(plan, of_sources, of_instances, instances)
    observed = []
    for source, own, columns in zip(plan.sources, files, of_sources, strict=True):
        table = own.read(as_text=(*columns.keys, *columns.classes, *columns.scales, *filter(None, [columns.size])))
        alone = len(plan.sources) == 1
        options = CountOptions(source, plan.missing_members, plan.drop_bad_groups)
        match = Match(table, columns, instances, of_instances, options, plan.drop_unmatched, alone, classes)
        observed.append(read_observations(match, source.relation))
    for source, one in zip(plan.sources, observed, strict=True):
        if source.rates is not None and one.z is not None:
            with failing(one.table.file):
                weights_by_answer(source.rates, torch.as_tensor(one.z))
    if plan.shares is not None:
        with failing():
            read_class_shares(plan.shares, np.array(classes))
    problems = [problem for one in observed for problem in one.problems]
    # Where classes can be interchanged, labels for evaluation may bring their own names.
    unnamed = all(symmetry_of(one.aggregate, len(classes)) == "any" for one in observed)
    labels, label_problems = _labels(instances, of_instances.label, classes, own_names=unnamed)
    learned, wrong = _labels(instances, plan.labelled, classes, own_names=False)
    if plan.labelled is not None and learned is None:
        raise fail("no row has a class to learn from", instances.file, None, plan.labelled)
    values, rows = (None, None) if labels is None else labels
    subjects = None if of_instances.subject is None else number_subjects(instances.column(of_instances.subject))
    problems += [*label_problems, *wrong]
    return LoadedTables(plan, instances, of_instances, observed, classes, values, rows, learned, subjects, problems)


def number_subjects(column: pa.Array) -> np.ndarray:
    """Return the number of the subject of each row; a row without a subject has a number of its own.

    Examples
    --------
    >>> number_subjects(pa.array(["ann", "ben", None, "ann", None])).tolist()
    [0, 1, 2, 0, 3]
    """
    codes = codes_of(column)
    missing = codes < 0
    codes[missing] = codes.max(initial=-1) + 1 + np.arange(missing.sum())
    return codes


def with_categories(table: Table, names: Sequence[str]) -> Table:
    """Return a table in which some columns of numbers are text."""
    data = table.data
    for name in names:
        data = data.set_column(table.names.index(name), name, as_categories(table.column(name)))
    return Table(table.path, data)


def _read_keys(file: TableFile, keys: list[str]) -> Table:
    return file.read(keys, keys)


def _classes(
    plan: Plan, sources: Sequence[SourceColumns], of_instances: InstanceColumns, instances: Table
) -> tuple[str, ...]:
    """Return the names of the classes: those given, those of the counts, or numbers from 0 on."""
    counted = next((one.classes for one in sources if one.classes), None)
    names = plan.classes or counted
    if names is not None and len(set(names)) != len(names):
        raise fail(f"--classes must name different classes, got {', '.join(names)}")
    by_source = {"--n-classes": plan.n_classes, "the names of the classes": len(names) if names else None}
    by_source |= {one.aggregate: one.kind.n_classes for one in sources}
    counts = {count for count in by_source.values() if count is not None}
    if len(counts) > 1:
        numbers = ", ".join(f"{count} by {name}" for name, count in by_source.items() if count is not None)
        raise fail(f"the number of classes is told in different ways: {numbers}")
    if not counts:
        hint = ""
        if column := of_instances.label or plan.labelled or plan.names:
            hint = f"; column {column} has {len(label_texts(instances, column).drop_null().unique())}"
        raise fail(f"{sources[0].aggregate} does not tell how many classes there are; say it with --n-classes, or name "
                   f"them with --classes{hint}")  # fmt: skip
    count = counts.pop()
    if count < 2:
        raise fail(f"there must be at least 2 classes, got {count}")
    return tuple(names) if names else tuple(str(number) for number in range(count))


def _labels(
    instances: Table, column: str | None, classes: Sequence[str], *, own_names: bool
) -> tuple[tuple[np.ndarray, np.ndarray] | None, list[Problem]]:
    """Return the true classes of rows that have one, and these rows, or name those whose class is none."""
    if column is None:
        return None, []
    texts = label_texts(instances, column)
    if list(classes) == ["0", "1"]:
        lower = pc.utf8_lower(texts)
        texts = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", texts))
    missing = is_missing(texts)
    distinct = texts.drop_null().unique()
    problems = []
    if not (own_names and len(distinct) <= len(classes)):
        unknown = (find(texts, pa.array(classes)) < 0) & ~missing
        problems = list(
            in_rows(
                unknown,
                lambda row: (
                    f"the class {texts[row].as_py()!r} is none of {list_some(classes)}; mend it, name the classes with "
                    f"--classes, or go without the column with --exclude {column}"
                ),
                file=instances.file,
                column=column,
            )
        )
    rows = np.flatnonzero(~missing)
    if len(rows) == 0:
        return None, problems
    return (np.array(texts.take(pa.array(rows)).to_pylist()), rows), problems
