"""Predict what would be observed of new groups, pairs and triplets, with a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.files import raise_if_input
from unbag._utils.problems import Problem, in_rows, raise_errors
from unbag.aggregates import Aggregate, LabelProportions
from unbag.aggregates.registry import find_kind, make_aggregate
from unbag.data.columns import Table, is_missing
from unbag.data.features import Tally
from unbag.data.groups import Groups
from unbag.persistence.run_folder import Run
from unbag.tables.formulas import FormulaEscaper
from unbag.tables.ids import find, missing_keys, shared_keys
from unbag.tables.load import open_files
from unbag.tables.predict import (
    check_columns,
    check_format,
    load_run,
    plan_for,
    refuse_clash,
    result_names,
    with_results,
    without_preparation,
    writing,
)
from unbag.tables.roles import columns_of_instances, keys_in_source


def predict_groups_table(
    run: Run,
    instances: Path,
    groups: Path,
    out: Path,
    *,
    aggregate: str | None = None,
    id: str | None = None,
    group: str | None = None,
    raw_text: bool = False,
    device: str = "cpu",
) -> tuple[int, list[Problem]]:
    """Write what is to be expected of each group, and how probable it is, in the order in which a file names them.

    Of yes or no, and of classes, the more probable answer and the probability of each; of counts the expected ones,
    whole numbers near them, and the probability that it is exactly these.

    Parameters
    ----------
    run
        A finished run.
    instances
        Rows with the columns that the run has learned from.
    groups
        A file with the ids of groups, or of the rows of pairs or triplets; other columns are not read. The file of
        instances will do where it has a column of groups.
    out
        A file that ends in .csv or .parquet.
    aggregate
        Which kind of observation to predict, where the run has learned from several.
    id, group
        Columns of row and group ids; None: as in fit.
    raw_text
        Write text to CSV as it is, also where a spreadsheet would run it as a formula.
    device
        Where to predict.

    Returns
    -------
    tuple
        How many groups there were, and notes.
    """
    content, clf = load_run(run, device)
    check_format(out)
    raise_if_input(out, [instances, groups, *run.inputs])
    plan, place = plan_for(content, clf, instances, groups, aggregate)
    source, kind = plan.sources[0], find_kind(str(plan.sources[0].aggregate))
    own: dict[str, Any] = {"id": id, "group": group}
    name = "group" if kind.size is None else "id"
    own[name] = own[name] or content["inputs"][name]
    plan = replace(plan, **own, features=tuple(clf.preparation_.names), label=None, names=None)
    with open_files(plan) as (file, of_groups):
        if source.group not in of_groups.names:
            source = replace(source, group=None)
        check_columns(file.names, clf.preparation_, [], str(instances))
        columns = columns_of_instances(file.names, plan, [of_groups.names])
        keys = keys_in_source(of_groups.names, source, kind, columns)
        key = str(getattr(columns, name))
        table = of_groups.read(as_text=keys)
        rows = file.read(as_text=[key, *plan.categorical])
    new_groups, kept, problems = (_read_groups if kind.size is None else _read_tuples)(rows, key, table, keys)
    tally = Tally()
    X = clf.preparation_.encode(rows, tally)
    of_numbers = without_preparation(clf)
    of_sets = clf.aggregate_ if isinstance(clf.aggregate_, list) else [clf.aggregate_]
    built_in = ":" not in str(source.aggregate)
    meant = of_sets[place] if built_in else make_aggregate(str(source.aggregate), list(map(str, clf.classes_)))
    results = _predict(of_numbers, meant, X, new_groups, kept=kept, file=str(groups))
    formulas = FormulaEscaper(out.suffix == ".csv" and not raw_text)
    with writing(out) as write:
        write(formulas.escape(results))
    return len(new_groups), [*problems, *tally.as_problems(str(instances)), *formulas.as_problems(str(out))]


def _predict(clf: Any, aggregate: Aggregate, X: np.ndarray, groups: Groups, *, kept: pa.Table, file: str) -> pa.Table:
    """Return columns that are kept, what is predicted of each group, and its probability."""
    counted = aggregate.outcome in ("class_counts", "published_counts")
    clf.aggregate = LabelProportions() if counted else aggregate
    if aggregate.outcome == "class":
        probs = [clf.predict_groups(X, groups, np.full(len(groups), place)) for place in range(len(clf.classes_))]
        names = result_names(clf.classes_, kept.column_names, file)
        return with_results(kept, np.stack(probs, 1), clf.classes_, names)
    expected = clf.predict_groups(X, groups)
    if aggregate.outcome == "yes_no":
        answers = np.array(["0", "1"])
        names = result_names(answers, kept.column_names, file)
        return with_results(kept, np.stack([1 - expected, expected], 1), answers, names)
    whole = round_counts(expected, groups.sizes.numpy()) if counted else np.rint(expected).astype(np.int64)
    chance = clf.predict_groups(X, groups, whole)
    of_classes = [f"_{name}" for name in clf.classes_.tolist()] if counted else [""]
    names = [*(f"predicted{one}" for one in of_classes), *(f"expected{one}" for one in of_classes), "p_predicted"]
    refuse_clash(names, kept.column_names, file)
    columns = [*np.atleast_2d(whole.T), *np.atleast_2d(expected.T), chance]
    return pa.table([*kept.columns, *map(pa.array, columns)], names=[*kept.column_names, *names])


def round_counts(expected: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return whole counts near the expected ones that add up to the sizes of groups, by the largest remainders.

    Examples
    --------
    >>> round_counts(np.array([[1.4, 1.3, 0.3], [0.5, 0.5, 2.0]]), np.array([3, 3])).tolist()
    [[2, 1, 0], [1, 0, 2]]
    """
    whole = np.floor(expected).astype(np.int64)
    rank = np.argsort(np.argsort(-(expected - whole), axis=1, kind="stable"), axis=1)
    return whole + (rank < (sizes - whole.sum(1))[:, None])


def _read_groups(rows: Table, key: str, table: Table, keys: list[str]) -> tuple[Groups, pa.Table, list[Problem]]:
    """Return the groups that a file names, each once, the column of their ids, and notes."""
    of_rows, (named,), problems = shared_keys(rows, key, table, keys)
    problems += missing_keys(table, keys[0])
    named = named.drop_null().unique()
    which = find(of_rows, named)
    sizes = np.bincount(which[which >= 0], minlength=len(named))
    problems += [
        Problem(
            "error",
            f"group {named[place].as_py()!r} has no rows in column {key} of {rows.file}; leave it out, or predict the "
            f"groups that rows name with --groups {rows.file}",
            table.file,
        )
        for place in np.flatnonzero(sizes == 0)[:1].tolist()
    ]
    raise_errors(problems)
    if others := int((which < 0).sum()):
        message = f"{others:,} {'row is' if others == 1 else 'rows are'} in no group of {table.file}"
        problems.append(Problem("note", message, rows.file, None, key))
    members = np.argsort(which, kind="stable")[others:]
    offsets = np.append(0, np.cumsum(sizes))
    groups = Groups(torch.from_numpy(members), torch.from_numpy(offsets), n_rows=len(rows), ids=named.to_pylist())
    return groups, pa.table([named], names=keys), problems


def _read_tuples(rows: Table, key: str, table: Table, keys: list[str]) -> tuple[Groups, pa.Table, list[Problem]]:
    """Return the pairs or triplets that a file names, the columns of their ids, and notes."""
    of_rows, of_members, problems = shared_keys(rows, key, table, keys)
    places = np.stack([find(one, of_rows) for one in of_members], 1)  # (groups, members)
    for name, one, place in zip(keys, of_members, places.T, strict=True):
        problems += missing_keys(table, name)
        problems += in_rows(
            (place < 0) & ~is_missing(one),
            lambda row, one=one: f"{one[row].as_py()!r} is not in column {key} of {rows.file}",  # type: ignore[misc]
            file=table.file,
            column=name,
        )
    raise_errors(problems)
    return Groups.from_tuples(torch.from_numpy(places), n_rows=len(rows)), table.data.select(keys), problems
