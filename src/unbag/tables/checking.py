"""Check the files before training: how they are understood, their problems, and columns that leak the label."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, TableError, list_some
from unbag.data.columns import Table, as_categories, is_array, is_missing
from unbag.data.features import as_numbers, feature_problems, find_number_texts, kind_of
from unbag.data.histograms import histogram_of_sizes
from unbag.data.scaling import LARGEST
from unbag.diagnostics import Context, diagnose_rows
from unbag.diagnostics.leakage import (
    Column,
    describe_odds,
    find_answer,
    find_group_id,
    is_constant_within,
    screen_columns,
)
from unbag.tables.disk import encode_in_memory, sample_groups
from unbag.tables.ids import codes_of
from unbag.tables.load import LoadedTables, load_tables
from unbag.tables.options import Plan

OF_COLUMNS = ("answer_column", "constant_columns", "group_column", "missing_columns")
"""Findings about single columns, which are reported with the names of columns in the file."""
OPTIONS = {
    "interchangeable_classes": "--names COLUMN",
    "copies": "--subject COLUMN",
    "near_duplicates": "--subject COLUMN",
    "unnamed_classes": "--names COLUMN",
    "unknown_borders": "--class-shares or --labelled COLUMN",
    "unlikely_answers": "--sampling",
    "unexpected_answers": "--sampling",
    "unused_classes": "--n-restarts, --class-shares, --labelled COLUMN, --sampling",
}
"""Options of the command line that help with a finding, by its kind."""
SEVERITIES = ("error", "warning", "note")
MIN_ROWS = 10  # in fewer rows, any column may have a different value in every row
NUMBERS_AT_ONCE = 2**22
LABEL_NAMES = (
    *("class", "y", "target", "outcome", "diagnosis", "truth", "label", "true_label", "true_class", "response"),
    *("ground_truth", "answer"),
)
"""Common names of the column of the label."""
COMMON = ("0", "1", "true", "false", "yes", "no", "y", "n", "t", "f", "positive", "negative", "pos", "neg")
"""Names of classes that are values of many other columns, too, as whole numbers are."""


@dataclass(frozen=True)
class Checked:
    """How the files were understood, and their problems."""

    understood: dict[str, Any]
    problems: list[Problem]

    def worst(self) -> str:
        """Return ``"error"``, ``"warning"`` or ``"clean"``."""
        severities = {problem.severity for problem in self.problems}
        return next((severity for severity in ("error", "warning") if severity in severities), "clean")


def check_tables(plan: Plan) -> Checked:
    """Read the files of a plan and list their problems; no error is raised for the content of a file."""
    try:
        loaded = load_tables(plan)
    except TableError as error:
        return Checked({}, error.problems)
    sample, problems = examine(loaded)
    if all(problem.severity != "error" for problem in problems):
        context = Context(
            [table.checked.counting() for table in sample.observed if table.checked is not None],
            loaded.classes,
            n_groups=sum(len(table.groups) for table in loaded.observed if table.groups is not None),
            subjects=None if sample.subjects is None else torch.from_numpy(sample.subjects),
        )
        findings = diagnose_rows(context, encode_in_memory(sample).rows)
        problems += as_problems([f for f in findings if f.fatal or f.kind not in OF_COLUMNS])
    problems.sort(key=lambda problem: SEVERITIES.index(problem.severity))
    return Checked(_describe(loaded, sample.instances), problems)


def examine(loaded: LoadedTables) -> tuple[LoadedTables, list[Problem]]:
    """Return the rows in which columns were checked, all or a sample of rows on disk, and the problems of the files."""
    sample, notes = loaded, []
    if loaded.on_disk:
        sample, note = sample_groups(loaded)
        notes = [note]
    return sample, [*loaded.problems, *notes, *_examine_features(sample), *_examine_observations(loaded)]


def as_problems(findings: Sequence[Finding]) -> list[Problem]:
    """Return findings as problems, with the options that help."""
    return [Problem("note" if f.kind == "few_groups" else "warning", _advise(f)) for f in findings]


def _advise(finding: Finding) -> str:
    option = OPTIONS.get(finding.kind)
    return finding.message if option is None else f"{finding.message} ({option})"


def _examine_observations(loaded: LoadedTables) -> Iterator[Problem]:
    """Yield what the observations do not identify; a set that identifies nothing may be useful beside others."""
    alone = len(loaded.observed) == 1
    for table, findings in zip(loaded.observed, loaded.findings, strict=True):
        for finding in findings:
            if finding.kind == "rows_without_group":
                yield Problem("note", finding.message, loaded.instances.file)
            elif finding.kind != "unnamed_classes":
                yield Problem("error" if finding.fatal and alone else "warning", _advise(finding), table.table.file)
            elif loaded.plan.names is None:
                yield Problem("note", _advise(finding), table.table.file)


def _examine_features(loaded: LoadedTables) -> Iterator[Problem]:
    """Yield problems of columns: missing or constant values, words among numbers, answers and ids."""
    column = loaded.columns.group
    group = None if column is None else codes_of(loaded.instances.column(column))  # of each row, -1 for none
    measured = measured_columns(loaded, group)
    for name in loaded.columns.features:
        if name not in measured:
            errors = list(feature_problems(loaded.instances, name, f"omit it with --exclude {name}"))
            yield from errors
            if not errors and not is_array(loaded.instances.first(name).type):
                yield from _examine_column(loaded, name, group)


def _examine_column(loaded: LoadedTables, name: str, group: np.ndarray | None) -> Iterator[Problem]:
    table, plan = loaded.instances, loaded.plan
    column = table.column(name)
    warn = partial(Problem, "warning", file=table.file, column=name)
    if (missing := is_missing(column)).any():
        treatment = "trees read them as they are; other models use the mean and a column that marks them"
        if kind_of(column) == "category":
            treatment = "they are a category"
        where = f"first row {int(missing.argmax()) + 1}"
        yield warn(f"{missing.sum():,} of {len(table):,} values are missing, {where}; {treatment}")
    codes = np.where(missing, -1, codes_of(column))
    if len(np.unique(codes)) == 1:
        yield warn(f"the column is {column[0].as_py()!r} in every row and contains no information")
        return
    if name not in plan.categorical and (text := find_number_texts(table, name, f"add --categorical {name}")):
        yield text
    inside = slice(0) if group is None else group >= 0
    if (leak := next(_find_leaks(loaded, name, codes, group), None)) is not None:
        if name in {*(plan.features or ()), *plan.trust}:
            yield warn(f"{leak}; it is used because it was named")
        else:
            advice = f"omit it with --exclude {name}, or use it as a feature with --trust {name}"
            yield Problem("error", f"{leak}; {advice}", table.file, None, name)
    elif group is not None and is_constant_within(codes[inside], group[inside]):
        message = "the column is the same in all rows of each group, but differs between groups"
        effect = "it identifies the group, not the row, and a model can memorise the observations by it"
        yield warn(f"{message}: {effect}; consider --exclude {name}")


def _find_leaks(loaded: LoadedTables, name: str, codes: np.ndarray, group: np.ndarray | None) -> Iterator[str]:
    """Yield what a column contains that no feature should, with the numbers behind it.

    ``codes`` are numbers of its distinct values, and ``group`` the number of the group of each row; -1 for none.
    """
    columns, values = loaded.columns, loaded.instances.column(name)
    n_columns, texts = len(columns.features), as_categories(values)

    def equals(key: str | None) -> bool:
        return key is not None and as_categories(loaded.instances.column(key)).equals(texts)

    distinct = texts.drop_null().unique().to_pylist()
    classes = {label.strip().casefold() for label in loaded.classes}
    if len(distinct) > 1 and classes.issuperset(value.strip().casefold() for value in distinct):
        distinctive = not all(label in COMMON or label.isdecimal() for label in classes)
        if distinctive or "_".join(name.lower().replace("-", " ").split()) in LABEL_NAMES:
            names = f"{(codes >= 0).sum():,} of {len(codes):,} values are names of classes"
            yield f"{names} ({list_some(sorted(distinct))}); if they are labels for evaluation, pass --label {name}"
    if pa.types.is_string(values.type):
        words, places = np.unique(np.where(codes < 0, "", values.fill_null("")), return_inverse=True)
        column = Column(np.where(codes < 0, -1, places), None, words)
    else:
        column = Column.from_numbers(as_numbers(values))
    for table in loaded.observed:
        if table.checked is not None and (found := find_answer(column, table.checked, n_columns)):
            yield found
    if equals(columns.id):
        yield f"the column is the id of the row, as in column {columns.id}"
    elif len(codes) >= MIN_ROWS and (codes >= 0).all() and len(np.unique(codes)) == len(codes):
        yield from _find_row_id(values, n_columns)
    if equals(columns.group):
        yield f"the column is the id of the group, as in column {columns.group}"
    elif group is not None and (found := find_group_id(codes, group, n_columns)):
        yield found.replace("it has", "the column has", 1)


def _find_row_id(column: pa.Array, n_columns: int) -> Iterator[str]:
    """Yield why a column that differs in all rows looks like an id; measured numbers and dates may well differ."""
    n = len(column)
    if pa.types.is_string(column.type):
        yield f"the column has a different text in every one of {n:,} rows, like an id or free text"
    if pa.types.is_string(column.type) or pa.types.is_temporal(column.type):
        return
    values = column.to_numpy(zero_copy_only=False)
    if (values != np.rint(values)).any():
        return
    # The chance of n different numbers out of so many; if some were more frequent, it would be smaller.
    log_chance = float(np.log1p(-np.arange(n) / (float(values.max()) - float(values.min()) + 1)).sum())
    if (np.diff(values) == 1).all():
        yield f"the column is a number that counts the {n:,} rows"
    elif odds := describe_odds(log_chance, n_columns):
        numbers = f"the column has a different whole number in every one of {n:,} rows"
        span = f"from {values.min():.0f} to {values.max():.0f}"
        yield f"{numbers}, {span}, like an id, {odds}"


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


def _describe(loaded: LoadedTables, table: Table) -> dict[str, Any]:
    """Return how the files were understood, as JSON; the features of the table are in memory."""
    columns = loaded.columns
    roles = {name: getattr(columns, name) for name in ("id", "group", "label")}
    roles |= {} if columns.subject is None else {"subject": columns.subject}
    kinds = {name: kind_of(table.data.schema.field(name)) for name in columns.features}
    shown = ("aggregate", "certain", "group", "observed", "size", "weight")
    return {
        "instances": {"file": table.file, "rows": len(loaded.instances), **roles, "features": kinds},
        "classes": list(loaded.classes),
        "observations": [
            {
                "file": observed.table.file,
                "rows": len(observed.table),
                **{name: getattr(observed.columns, name) for name in shown},
                "members": list(observed.columns.members),
                "read": [read._asdict() for read in observed.read],
                "sizes": None if observed.groups is None else histogram_of_sizes(observed.groups.sizes.numpy()),
            }
            for observed in loaded.observed
        ],
    }
