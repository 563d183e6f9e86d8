"""Predict rows in observed groups with a finished run, given what was observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.files import raise_if_input
from unbag._utils.problems import Problem, fail, raise_errors
from unbag.data.columns import Table
from unbag.persistence.run_folder import Run
from unbag.tables.files import ROWS_AT_ONCE, TableFile
from unbag.tables.formulas import FormulaEscaper
from unbag.tables.load import gather_opened, open_files
from unbag.tables.observations import Observed
from unbag.tables.predict import (
    Rows,
    check_columns,
    check_format,
    load_run,
    plan_for,
    read_rows,
    result_names,
    with_results,
    writing,
)


def disaggregate_table(
    run: Run,
    instances: Path,
    groups: Path,
    out: Path,
    *,
    aggregate: str | None = None,
    drop_unmatched: bool = False,
    raw_text: bool = False,
    device: str = "cpu",
) -> tuple[int, list[Problem]]:
    """Write the probability of each class for rows in observed groups, given what was observed of these.

    Of proportions and bags, one line per row that is in a group, in the order of the rows; of pairs and triplets, one
    line per member, in the order of the pairs. Features are read and predicted piece by piece: what is held of each row
    are its ids and the probabilities of its classes.

    Parameters
    ----------
    run
        A finished run.
    instances, groups
        Files with the columns that fit had; the rows of fit, or others.
    out
        A file that ends in .csv or .parquet.
    aggregate
        Which kind of observation the file of groups holds, where the run has learned from several.
    drop_unmatched
        Go on without rows and groups that have no partner in the other file.
    raw_text
        Write text to CSV as it is, also where a spreadsheet would run it as a formula.
    device
        Where to predict.

    Returns
    -------
    tuple
        How many lines were written, and notes.
    """
    content, clf = load_run(run, device)
    options: dict[str, Any] = {"aggregate": aggregate, "drop_unmatched": drop_unmatched, "raw_text": raw_text}
    return disaggregate_with(partial(read_rows, clf), (run, content, clf), instances, groups, out, **options)


def disaggregate_with(
    read_rows: Callable[[TableFile, list[str]], Rows],
    loaded: tuple[Run, dict[str, Any], Any],
    instances: Path,
    groups: Path,
    out: Path,
    *,
    aggregate: str | None,
    drop_unmatched: bool,
    raw_text: bool,
) -> tuple[int, list[Problem]]:
    """Write what :func:`disaggregate_table` does, with rows that a function reads and predicts, given their keys."""
    run, content, clf = loaded
    preparation = clf.preparation_
    check_format(out)
    raise_if_input(out, [instances, groups, *run.inputs])
    plan, _ = plan_for(content, clf, instances, groups, aggregate)
    plan = replace(plan, features=tuple(preparation.names), drop_unmatched=drop_unmatched, label=None)
    rows: list[Rows] = []

    def read(file: TableFile, keys: list[str]) -> Table:
        rows.append(read_rows(file, keys))
        return rows[0].keys

    with open_files(plan) as files:
        check_columns(files[0].names, preparation, [], str(instances))
        gathered = gather_opened(plan, files, read)
    raise_errors(gathered.problems)
    one = gathered.observed[0]
    if one.checked is None:
        raise fail("no group is left", one.table.file)
    from unbag.predictor import posterior_of  # noqa: PLC0415 (scikit-learn is slow to import)

    posterior = posterior_of(one.checked, torch.from_numpy(rows[0].log_probs)).numpy()
    tally = rows.pop().tally  # what the model says of all rows is needed no more, and takes much memory
    lines = _Lines(one, gathered.instances, gathered.columns.id, gathered.columns.group)
    results = result_names(clf.classes_, lines.take(slice(0, 1)).column_names, str(instances))
    formulas = FormulaEscaper(out.suffix == ".csv" and not raw_text)
    with writing(out) as write:
        for first in range(0, len(posterior), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            probs = posterior[lines.order[part]]
            write(formulas.escape(with_results(lines.take(part), probs, clf.classes_, results)))
    problems = [*(p for p in gathered.problems if p.severity != "error"), *tally.as_problems(str(instances))]
    problems += formulas.as_problems(str(out))
    if impossible := int(np.isnan(posterior).any(1).sum()):
        problems.append(
            Problem(
                "warning",
                f"{impossible:,} lines have no probabilities: the model rules out what was observed",
                str(out),
            )
        )
    return len(posterior), problems


class _Lines:
    """Columns that say which row each line is about, and the memberships in the order of the lines."""

    def __init__(self, one: Observed, instances: Table, own_id: str | None, group: str | None) -> None:
        assert one.groups is not None
        self._one, self._members = one, one.groups.members.numpy()
        by_row = one.columns.group is not None
        self.order = np.argsort(self._members, kind="stable") if by_row else np.arange(len(self._members))
        self._keys = instances.data.select([name for name in (own_id, group if by_row else None) if name is not None])

    def take(self, part: slice) -> pa.Table:
        """Return those of some lines."""
        one, which = self._one, self.order[part]
        kept = self._keys.take(pa.array(self._members[which]))
        if one.columns.group is not None:
            return kept
        size = len(one.columns.members)
        pair, place = which // size, which % size
        if one.turned is not None:
            place = np.where(one.turned[pair], size - 1 - place, place)
        names = np.array(one.columns.members, dtype=object)[place]
        return pa.table(
            [pa.array(one.source_rows[pair] + 1), pa.array(names), *kept.columns],
            names=["observation", "member", *kept.column_names],
        )
