"""Observations of pairs and triplets of rows, which name the rows by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.problems import Problem, in_rows
from unbag.data.columns import Table, is_missing
from unbag.data.groups import Groups
from unbag.tables.ids import find, missing_keys, repeated, shared_keys
from unbag.tables.join import Match, Strangers
from unbag.tables.values import Values


def read_tuples(match: Match) -> tuple[Groups | None, Values, np.ndarray, list[Problem]]:
    """Return groups, what was observed of them, the rows of the file that it comes from, and all that does not fit."""
    table, instances, own = match.source, match.instances, str(match.of_instances.id)
    of_rows, of_members, problems = shared_keys(instances, own, table, list(match.columns.members))
    problems += missing_keys(instances, own)
    problems += in_rows(
        repeated(of_rows),
        lambda row: f"the id {of_rows[row].as_py()!r} is that of an earlier row already; ids must differ",
        file=instances.file,
        column=own,
    )
    places = np.stack([find(keys, of_rows) for keys in of_members], 1)  # (groups, members)
    known = (places >= 0).all(1)
    drop = match.drop and bool(known.any())
    for name, keys, place in zip(match.columns.members, of_members, places.T, strict=True):
        problems += missing_keys(table, name)
        unknown = (place < 0) & ~is_missing(keys)
        lacks = f"is not in column {own} of {instances.file}"
        problems += Strangers(table, name, keys, unknown, of_rows, lacks).problems(drop)
    ordered = np.sort(places, 1)
    problems += in_rows(
        known & (ordered[:, 1:] == ordered[:, :-1]).any(1),
        lambda _: "a row is compared with itself, which tells nothing; leave this line out",
        file=table.file,
    )
    kept = np.flatnonzero(known)
    sizes = np.full(len(table), places.shape[1])
    observed = match.read_observed(pa.array(range(1, len(table) + 1)), sizes)
    problems += observed.problems
    if observed.left_out is not None:
        kept = kept[~observed.left_out[kept]]
    if observed.z is None or any(one.severity == "error" for one in problems):
        return None, observed, kept, problems
    observed = replace(observed, z=observed.z[kept])
    problems += _repetitions(places[kept], observed.z, table, kept)
    return Groups.from_tuples(torch.from_numpy(places[kept]), n_rows=len(instances)), observed, kept, problems


def as_lower(groups: Groups, relations: np.ndarray) -> tuple[Groups, np.ndarray, np.ndarray]:
    """Return relations as answers to "is the first lower": ``>`` and ``<=`` are about the pair turned round.

    Returns
    -------
    tuple
        The pairs, the answers, and which pairs are turned round.

    Examples
    --------
    >>> groups, z, turned = as_lower(Groups.from_tuples([[0, 1], [0, 1], [0, 1]]), np.array(["<", ">", "<="]))
    >>> groups.to_tuples().tolist(), z.tolist(), turned.tolist()
    ([[0, 1], [1, 0], [1, 0]], [1, 1, 0], [False, True, True])
    """
    pairs = groups.to_tuples().numpy().copy()
    turned = np.isin(relations, [">", "<="])
    pairs[turned] = pairs[turned, ::-1]
    lower = np.isin(relations, ["<", ">"])
    return Groups.from_tuples(torch.from_numpy(pairs), n_rows=groups.n_rows), lower.astype(np.int64), turned


def _repetitions(places: np.ndarray, z: Any, table: Table, kept: np.ndarray) -> Iterator[Problem]:
    """Warn of ids that were observed before, with another answer or the same."""
    _, first, which = np.unique(places, axis=0, return_index=True, return_inverse=True)
    earlier = first[which.reshape(-1)]  # (groups,), where the same ids come first
    again = earlier != np.arange(len(places))
    answers = np.unique(z, axis=0 if z.ndim > 1 else None, return_inverse=True)[1].reshape(-1)
    contrary = again & (answers != answers[earlier])
    bad = np.zeros(len(table), dtype=bool)
    bad[kept[contrary]] = True
    yield from in_rows(
        bad, lambda _: "an earlier row says otherwise of the same ids", file=table.file, severity="warning"
    )
    if same := int((again & ~contrary).sum()):
        rows = "1 row repeats" if same == 1 else f"{same:,} rows repeat"
        more = "counts" if same == 1 else "count"
        yield Problem("warning", f"{rows} an earlier one, and {more} once more", table.file)
