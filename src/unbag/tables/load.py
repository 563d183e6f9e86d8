"""Load the files of a plan and match them: rows, observations, classes, and everything that does not fit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, fail, failing, in_rows, list_some
from unbag.aggregates.class_shares import ClassShares, read_class_shares
from unbag.aggregates.symmetry import Symmetry, find_symmetry, symmetry_of
from unbag.data.columns import Table, as_categories, is_missing
from unbag.data.weights import weights_by_answer
from unbag.diagnostics import Context, run_checks
from unbag.tables.files import ParquetFiles, TableFile, TidyFile, open_table, state_of_parts
from unbag.tables.ids import codes_of, find, label_texts
from unbag.tables.observations import ObservationReader, ObservationTable
from unbag.tables.options import Plan
from unbag.tables.output import Output
from unbag.tables.roles import InstanceColumns, SourceColumns, columns_of_instances, columns_of_source

Labels = tuple[np.ndarray, np.ndarray]
"""Names of classes, and the rows that have them."""


@dataclass(frozen=True, eq=False)
class LoadedTables:
    """The files of a plan, read and matched."""

    plan: Plan
    instances: Table
    columns: InstanceColumns
    observed: list[ObservationTable]
    classes: tuple[str, ...]
    labels: Labels | None
    """True classes, for evaluation."""
    learned_labels: Labels | None
    """Classes to learn from."""
    subjects: np.ndarray | None
    """The number of the subject of each row, ``(rows,)``; a row without a subject has a unique number."""
    problems: list[Problem]
    on_disk: list[tuple[str, int, int]] | None = None
    """Name, size and time of change of each file, if features are not in memory."""

    @cached_property
    def findings(self) -> list[list[Finding]]:
        """What the observations of each file do not identify; empty for observations with errors."""
        return [[] if table.checked is None else self._diagnose(table) for table in self.observed]

    def _diagnose(self, table: ObservationTable) -> list[Finding]:
        assert table.checked is not None
        # If the answer has determined the order, frequencies of answers have no meaning.
        rates = table.source.rates if table.turned is None else {0: 1, 1: 1}
        shares, symmetry = self.shares, self._symmetry
        named = shares is not None and shares.identify_classes(symmetry, len(self.instances))
        known = self.learned_labels is not None
        context = Context(
            [table.checked.counting()],
            self.classes,
            sampling=[rates],
            classes_named=known or named or symmetry == "none",
            borders_known=known or shares is not None or any(other.columns.classes for other in self.observed),
        )
        return run_checks("observations", context)

    @cached_property
    def _symmetry(self) -> Symmetry:
        return find_symmetry([table.checked.counting() for table in self.observed if table.checked is not None])

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
    all features; otherwise those of large Parquet files stay on disk.
    """
    with open_files(plan) as files:
        if in_memory or not is_on_disk(plan, files[0]):
            return match_tables(plan, files)
        parts = state_of_parts(plan.instances)
        return replace(match_tables(plan, files, lambda file, keys: file.read(keys, keys)), on_disk=parts)


def is_on_disk(plan: Plan, instances: TableFile) -> bool:
    """Return whether rows stay on disk: if a folder for them is named, or Parquet has more than a tenth of the memory.

    A table in memory takes several times as much as its files. Models that need rows in memory get them there, unless a
    folder is named.
    """
    if plan.disk is not None and not isinstance(instances, ParquetFiles):
        message = "rows are read piece by piece only from Parquet; write the file in this format"
        raise fail(message, str(instances.path))
    if plan.disk is not None or not isinstance(instances, ParquetFiles) or plan.training.model == "trees":
        return plan.disk is not None
    return instances.size > memory_size() / 10


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
    file, *files = files
    of_instances = columns_of_instances(file.names, plan, [source.names for source in files])
    of_sources: list[SourceColumns] = []
    for source, opened in zip(plan.sources, files, strict=True):
        counted = next((columns.classes for columns in of_sources if columns.classes), plan.classes)
        within = replace(plan, classes=counted)
        of_sources.append(columns_of_source(opened.names, source, within, of_instances))
    roles = {of_instances.id, of_instances.group, of_instances.label, of_instances.subject, plan.names, plan.labelled}
    keys = [name for name in file.names if name in roles]
    if read is None:
        instances = with_categories(file.read(as_text=[*keys, *plan.categorical]), plan.categorical)
    else:
        instances = read(file, keys)
    classes = _find_classes(plan, of_sources, of_instances, instances)
    observed = []
    for source, opened, columns in zip(plan.sources, files, of_sources, strict=True):
        table = opened.read(as_text=(*columns.keys, *columns.classes, *columns.scales, *filter(None, [columns.size])))
        found = ObservationReader(plan, source, table, columns, instances, of_instances, classes).read_all()
        observed.append(found)
        if source.rates is not None and found.z is not None:
            with failing(table.file):
                weights_by_answer(source.rates, torch.as_tensor(found.z))
    if plan.shares is not None:
        with failing():
            read_class_shares(plan.shares, np.array(classes))
    if plan.tidied is not None:
        write_repaired(plan.tidied, [file, *files])
    repairs = [repair for opened in (file, *files) for repair in opened.repairs]
    problems = [*repairs, *(problem for table in observed for problem in table.problems)]
    # Where classes can be interchanged, labels for evaluation may have names of their own.
    unnamed = all(symmetry_of(table.aggregate, len(classes)) == "any" for table in observed)
    labels = _read_labels(instances, of_instances.label, classes, problems, any_names=unnamed)
    learned = _read_labels(instances, plan.labelled, classes, problems)
    if plan.labelled is not None and learned is None:
        raise fail("no row has a class to learn from", instances.file, None, plan.labelled)
    subjects = None if of_instances.subject is None else number_subjects(instances.column(of_instances.subject))
    return LoadedTables(plan, instances, of_instances, observed, classes, labels, learned, subjects, problems)


def write_repaired(folder: Path, files: Sequence[TableFile]) -> None:
    """Write the repaired tables to CSV files in a folder, with a note for each."""
    inputs = [file.path for file in files]
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        if isinstance(file, TidyFile) and file.data is not None:
            again = any(file.path.stem == earlier.stem for earlier in inputs[:number])  # such as sheets of a workbook
            out = folder / f"{file.path.stem}{f'-{number + 1}' if again else ''}.csv"
            written = Problem("note", f"the repaired table was written to {out}", str(file.path))
            file.repairs = [*file.repairs, *Output(out, inputs).write([file.data]), written]


def number_subjects(column: pa.Array) -> np.ndarray:
    """Return the number of the subject of each row; a row without a subject has a unique number.

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
