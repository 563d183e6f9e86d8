"""Validation of the files before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unbag._utils.arrays import is_array
from unbag._utils.findings import Finding
from unbag._utils.problems import Problem, TableError, fail
from unbag.data.columns import Table, is_missing
from unbag.data.features import feature_problems, find_number_texts, fit_preparation, kind_of
from unbag.data.histograms import histogram_of_sizes
from unbag.diagnostics.row_diagnosis import find_copies, find_few_groups, read_table
from unbag.tables.ids import codes_of
from unbag.tables.leaks import Candidate, measured_columns
from unbag.tables.load import LoadedTables as Gathered
from unbag.tables.load import load_tables as gather
from unbag.tables.observations import ObservationTable as Observed
from unbag.tables.options import Plan
from unbag.tables.roles import kinds_of_size

OPTIONS = {
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
        gathered = gather(plan)
    except TableError as error:
        return Checked({}, error.problems)
    looked, notes = sample_for_checks(gathered)
    problems = [*gathered.problems, *notes, *examine_features(looked), *examine_observations(gathered)]
    if all(one.severity != "error" for one in problems):
        problems += as_problems(examine_rows(gathered, looked))
    order = {"error": 0, "warning": 1, "note": 2}
    return Checked(_understood(gathered, looked.instances), sorted(problems, key=lambda one: order[one.severity]))


def sample_for_checks(gathered: Gathered) -> tuple[Gathered, list[Problem]]:
    """Return what is examined: all rows, or those of some groups where rows are on disk, and a note of that."""
    if not gathered.on_disk:
        return gathered, []
    from unbag.tables.disk import excerpt_of  # noqa: PLC0415 (slow to import)

    looked, note = excerpt_of(gathered)
    return looked, [note]


def require_explicit_kind(gathered: Gathered) -> None:
    """Refuse to train on observations whose kind was only guessed."""
    for one in gathered.observed:
        if not one.columns.certain:
            kinds = " or ".join(kind.name for kind in kinds_of_size(one.columns.kind.size))
            raise fail(f"this may be {kinds}; say which with --aggregate", one.table.file)


def examine_features(gathered: Gathered) -> Iterator[Problem]:
    """Yield what is wrong with features, or suspicious: missing, constant, numbers with words, answers and ids."""
    column = gathered.columns.group
    group = None if column is None else codes_of(gathered.instances.column(column))  # of each row, -1 for none
    measured = measured_columns(gathered, group)
    for name in gathered.columns.features:
        if name in measured:
            continue
        errors = list(feature_problems(gathered.instances, name, f"leave it out with --exclude {name}"))
        yield from errors
        if not errors and not is_array(gathered.instances.first(name).type):
            yield from _suspicious(gathered, name, group)


def examine_observations(gathered: Gathered) -> Iterator[Problem]:
    """Yield what the observations cannot tell; a set that tells nothing may still stand beside others."""
    alone = len(gathered.observed) == 1
    for one, findings in zip(gathered.observed, gathered.findings, strict=True):
        for finding in findings:
            if finding.kind == "unnamed_classes" and gathered.plan.names is not None:
                continue
            if finding.kind == "unnamed_classes":
                yield Problem("note", say_finding(finding), one.table.file)
            elif finding.kind == "rows_without_group":
                yield Problem("note", finding.message, gathered.instances.file)
            else:
                yield Problem("error" if finding.fatal and alone else "warning", say_finding(finding), one.table.file)


def say_finding(finding: Finding) -> str:
    """Return what a finding says, with the options that its advice is about."""
    option = OPTIONS.get(finding.kind)
    return finding.message if option is None else f"{finding.message} ({option})"


def _encode_rows(gathered: Gathered) -> np.ndarray:
    """Return the rows as numbers, as the estimator sees them."""
    from unbag.families import is_network  # noqa: PLC0415 (slow to import)

    preparation = fit_preparation(
        gathered.instances,
        gathered.columns.features,
        gathered.member_rows,
        keep_missing=not is_network(gathered.plan.training.model),  # trees read them as they are
    )
    return preparation.encode(gathered.instances)


def examine_rows(gathered: Gathered, looked: Gathered) -> list[Finding]:
    """Return what is suspicious about all columns together; single columns are a matter of :func:`examine_features`.

    ``looked`` is what :func:`sample_for_checks` returns.
    """
    rows, sets = read_table(_encode_rows(looked)), [one.checked for one in looked.observed if one.checked is not None]
    copies = [finding for one in sets if one.groups.max_size > 1 for finding in find_copies(rows, one.groups)]
    n_groups = sum(len(one.checked.groups) for one in gathered.observed if one.checked is not None)
    return [*find_few_groups(rows, sets, n_groups), *copies]


def as_problems(findings: Sequence[Finding]) -> list[Problem]:
    """Return findings as the commands show them."""
    return [Problem("note" if one.kind == "few_groups" else "warning", say_finding(one)) for one in findings]


def _suspicious(gathered: Gathered, name: str, group: np.ndarray | None) -> Iterator[Problem]:
    table = gathered.instances
    column = table.column(name)
    missing = is_missing(column)
    if missing.any():
        fate = (
            "they are a category of their own"
            if kind_of(column) == "category"
            else "trees take them as they are"
            if gathered.plan.training.model == "trees"
            else "the median stands for them, and a further feature marks them"
        )
        yield Problem(
            "warning",
            f"{missing.sum():,} of {len(table):,} values are missing, first row {int(missing.argmax()) + 1}; {fate}",
            table.file,
            None,
            name,
        )
    candidate = Candidate(gathered, name, group)
    if len(np.unique(candidate.codes)) == 1:
        yield Problem(
            "warning", f"the column is {column[0].as_py()!r} in every row and tells nothing", table.file, None, name
        )
        return
    if name not in gathered.plan.categorical:
        numbers = find_number_texts(table, name, f"say --categorical {name}")
        yield from [] if numbers is None else [numbers]
    if (leak := next(candidate.leaks(), None)) is not None:
        yield _refuse(gathered, name, leak)
    elif candidate.constant_within_groups():
        yield Problem(
            "warning",
            "the column is the same in all rows of each group, but differs between groups: it tells the group, not the "
            f"row, and a model can learn the observations by heart from it; consider --exclude {name}",
            table.file,
            None,
            name,
        )


def _refuse(gathered: Gathered, name: str, leak: str) -> Problem:
    """Refuse a column that tells the answer, the row or the group; one that was named is taken with a warning."""
    if name in {*(gathered.plan.features or ()), *gathered.plan.trust}:
        advice = "it is learned from because it was named"
        return Problem("warning", f"{leak}; {advice}", gathered.instances.file, None, name)
    advice = f"leave it out with --exclude {name}, or learn from it all the same with --trust {name}"
    return Problem("error", f"{leak}; {advice}", gathered.instances.file, None, name)


def _understood(gathered: Gathered, table: Table) -> dict[str, Any]:
    """Return how the files were read, as JSON can hold it; the table has features in memory."""
    kinds = {name: kind_of(table.data.schema.field(name)) for name in gathered.columns.features}
    return {
        "instances": {
            "file": table.file,
            "rows": len(gathered.instances),
            "id": gathered.columns.id,
            "group": gathered.columns.group,
            "label": gathered.columns.label,
            **({} if gathered.columns.subject is None else {"subject": gathered.columns.subject}),
            "features": kinds,
        },
        "classes": list(gathered.classes),
        "observations": [_understood_source(one) for one in gathered.observed],
    }


def _understood_source(one: Observed) -> dict[str, Any]:
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
