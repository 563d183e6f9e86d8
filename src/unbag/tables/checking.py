"""Validation of the files before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, TableError, fail
from unbag.data.columns import Table, is_array, is_missing
from unbag.data.features import feature_problems, find_number_texts, kind_of
from unbag.data.histograms import histogram_of_sizes
from unbag.diagnostics import Context, run_checks
from unbag.tables.disk import encode_in_memory, excerpt_of
from unbag.tables.ids import codes_of
from unbag.tables.leaks import Candidate, measured_columns
from unbag.tables.load import LoadedTables, load_tables
from unbag.tables.observations import ObservationTable
from unbag.tables.options import Plan
from unbag.tables.roles import kinds_of_size

OF_COLUMNS = ("answer_column", "constant_columns", "group_column", "missing_columns")
"""Findings about single columns, which :func:`examine_features` names as they are called in the file."""

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


@dataclass(frozen=True)
class Checked:
    """What was understood of the files, and what is wrong with them."""

    understood: dict[str, Any]
    problems: list[Problem]

    def worst(self) -> str:
        """Return ``"error"``, ``"warning"`` or ``"clean"``."""
        return next((one for one in ("error", "warning") if any(p.severity == one for p in self.problems)), "clean")


def check_tables(plan: Plan) -> Checked:
    """Read the files of a plan and list what is wrong with them; nothing is raised for what a file holds.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from unbag.tables.plan import make_plan
    >>> empty = Path(tempfile.mkdtemp()) / "people.csv"
    >>> empty.touch()
    >>> checked = check_tables(make_plan({"instances": empty, "groups": empty}))
    >>> checked.worst(), checked.problems[0].message
    ('error', 'the file is empty; it needs a line with the names of the columns, and rows below')
    """
    try:
        loaded = load_tables(plan)
    except TableError as error:
        return Checked({}, error.problems)
    sample, notes = sample_for_checks(loaded)
    problems = [*loaded.problems, *notes, *examine_features(sample), *examine_observations(loaded)]
    if all(one.severity != "error" for one in problems):
        problems += as_problems(examine_rows(loaded, sample))
    order = {"error": 0, "warning": 1, "note": 2}
    return Checked(_understood(loaded, sample.instances), sorted(problems, key=lambda one: order[one.severity]))


def sample_for_checks(loaded: LoadedTables) -> tuple[LoadedTables, list[Problem]]:
    """Return what is examined: all rows, or those of some groups where rows are on disk, and a note of that."""
    if not loaded.on_disk:
        return loaded, []
    sample, note = excerpt_of(loaded)
    return sample, [note]


def require_explicit_kind(loaded: LoadedTables) -> None:
    """Refuse to train on observations whose kind was only guessed."""
    for one in loaded.observed:
        if not one.columns.certain:
            kinds = " or ".join(kind.name for kind in kinds_of_size(one.columns.kind.size))
            raise fail(f"this may be {kinds}; say which with --aggregate", one.table.file)


def examine_features(loaded: LoadedTables) -> Iterator[Problem]:
    """Yield what is wrong with features, or suspicious: missing, constant, numbers with words, answers and ids."""
    column = loaded.columns.group
    group = None if column is None else codes_of(loaded.instances.column(column))  # of each row, -1 for none
    measured = measured_columns(loaded, group)
    for name in loaded.columns.features:
        if name in measured:
            continue
        errors = list(feature_problems(loaded.instances, name, f"leave it out with --exclude {name}"))
        yield from errors
        if not errors and not is_array(loaded.instances.first(name).type):
            yield from _suspicious(loaded, name, group)


def examine_observations(loaded: LoadedTables) -> Iterator[Problem]:
    """Yield what the observations cannot tell; a set that tells nothing may still stand beside others."""
    alone = len(loaded.observed) == 1
    for one, findings in zip(loaded.observed, loaded.findings, strict=True):
        for finding in findings:
            if finding.kind == "unnamed_classes" and loaded.plan.names is not None:
                continue
            if finding.kind == "unnamed_classes":
                yield Problem("note", describe_finding(finding), one.table.file)
            elif finding.kind == "rows_without_group":
                yield Problem("note", finding.message, loaded.instances.file)
            else:
                yield Problem("error" if finding.fatal and alone else "warning", describe_finding(finding), one.table.file)


def describe_finding(finding: Finding) -> str:
    """Return what a finding says, with the options that its advice is about."""
    option = OPTIONS.get(finding.kind)
    return finding.message if option is None else f"{finding.message} ({option})"


def examine_rows(loaded: LoadedTables, sample: LoadedTables) -> list[Finding]:
    """Return what is suspicious about all columns together; single columns are a matter of :func:`examine_features`.

    ``sample`` is what :func:`sample_for_checks` returns.
    """
    context = Context(
        [one.checked.counting() for one in sample.observed if one.checked is not None],
        loaded.classes,
        X=encode_in_memory(sample).rows.double(),
        n_groups=sum(len(one.checked.groups) for one in loaded.observed if one.checked is not None),
        subjects=None if sample.subjects is None else torch.from_numpy(sample.subjects),
    )
    return [finding for finding in run_checks("rows", context) if finding.fatal or finding.kind not in OF_COLUMNS]


def as_problems(findings: Sequence[Finding]) -> list[Problem]:
    """Return findings as the commands show them."""
    return [Problem("note" if one.kind == "few_groups" else "warning", describe_finding(one)) for one in findings]


def _suspicious(loaded: LoadedTables, name: str, group: np.ndarray | None) -> Iterator[Problem]:
    table = loaded.instances
    column = table.column(name)
    missing = is_missing(column)
    if missing.any():
        fate = (
            "they are a category of their own"
            if kind_of(column) == "category"
            else "trees read them as they are; other models use the mean and a column that marks them"
        )
        yield Problem(
            "warning",
            f"{missing.sum():,} of {len(table):,} values are missing, first row {int(missing.argmax()) + 1}; {fate}",
            table.file,
            None,
            name,
        )
    candidate = Candidate(loaded, name, group)
    if len(np.unique(candidate.codes)) == 1:
        yield Problem(
            "warning", f"the column is {column[0].as_py()!r} in every row and tells nothing", table.file, None, name
        )
        return
    if name not in loaded.plan.categorical:
        numbers = find_number_texts(table, name, f"say --categorical {name}")
        yield from [] if numbers is None else [numbers]
    if (leak := next(candidate.leaks(), None)) is not None:
        yield _refuse(loaded, name, leak)
    elif candidate.constant_within_groups():
        yield Problem(
            "warning",
            "the column is the same in all rows of each group, but differs between groups: it tells the group, not the "
            f"row, and a model can learn the observations by heart from it; consider --exclude {name}",
            table.file,
            None,
            name,
        )


def _refuse(loaded: LoadedTables, name: str, leak: str) -> Problem:
    """Refuse a column that tells the answer, the row or the group; one that was named is taken with a warning."""
    if name in {*(loaded.plan.features or ()), *loaded.plan.trust}:
        advice = "it is learned from because it was named"
        return Problem("warning", f"{leak}; {advice}", loaded.instances.file, None, name)
    advice = f"leave it out with --exclude {name}, or learn from it all the same with --trust {name}"
    return Problem("error", f"{leak}; {advice}", loaded.instances.file, None, name)


def _understood(loaded: LoadedTables, table: Table) -> dict[str, Any]:
    """Return how the files were read, as JSON can hold it; the table has features in memory."""
    kinds = {name: kind_of(table.data.schema.field(name)) for name in loaded.columns.features}
    return {
        "instances": {
            "file": table.file,
            "rows": len(loaded.instances),
            "id": loaded.columns.id,
            "group": loaded.columns.group,
            "label": loaded.columns.label,
            **({} if loaded.columns.subject is None else {"subject": loaded.columns.subject}),
            "features": kinds,
        },
        "classes": list(loaded.classes),
        "observations": [_understood_source(one) for one in loaded.observed],
    }


def _understood_source(one: ObservationTable) -> dict[str, Any]:
    return {
        "file": one.table.file,
        "rows": len(one.table),
        "aggregate": one.columns.aggregate,
        "certain": one.columns.certain,
        "group": one.columns.group,
        "members": list(one.columns.members),
        "observed": one.columns.observed,
        "size": one.columns.size,
        "weight": one.columns.weight,
        "read": [one._asdict() for one in one.read],
        "sizes": None if one.groups is None else histogram_of_sizes(one.groups.sizes.numpy()),
    }
