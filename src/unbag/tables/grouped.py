"""Observations of groups that rows name: proportions and bags."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.problems import Problem, in_rows
from unbag.data.columns import is_missing
from unbag.data.groups import Groups
from unbag.tables.ids import find, missing_keys, repeated, shared_keys
from unbag.tables.join import Match, Strangers, without_group
from unbag.tables.values import Values


def read_grouped(match: Match) -> tuple[Groups | None, Values, np.ndarray, list[Problem]]:
    """Return groups, what was observed of them, the rows of the file that it comes from, and all that does not fit."""
    table, instances = match.source, match.instances
    group, own = str(match.columns.group), str(match.of_instances.group)
    of_rows, (of_groups,), problems = shared_keys(instances, own, table, [group])
    problems += missing_keys(table, group)
    problems += in_rows(
        repeated(of_groups),
        lambda row: f"group {of_groups[row].as_py()!r} has a row already; keep one row per group",
        file=table.file,
        column=group,
    )
    which = find(of_rows, of_groups)  # (rows,) the row of the group in its file
    sizes = np.bincount(which[which >= 0], minlength=len(table))  # (groups,)
    drop = match.drop and bool(sizes.any())  # where nothing matches, nothing would be left
    empty = (sizes == 0) & ~is_missing(of_groups) & ~repeated(of_groups)
    lacks = f"has no rows in column {own} of {instances.file}"
    problems += Strangers(table, group, of_groups, empty, of_rows, lacks).problems(drop)
    nowhere = is_missing(of_rows)
    unknown = (which < 0) & ~nowhere
    lacks = f"is not in column {group} of {table.file}"
    problems += Strangers(instances, own, of_rows, unknown, of_groups, lacks).problems(drop)
    problems += without_group(match, nowhere)
    observed = match.read_observed(of_groups, sizes)
    problems += observed.problems
    if observed.left_out is not None:
        which = np.where((which >= 0) & observed.left_out[which], -1, which)
        sizes = np.where(observed.left_out, 0, sizes)
    kept = np.flatnonzero(sizes > 0)
    if observed.z is None or any(one.severity == "error" for one in problems):
        return None, observed, kept, problems
    members = np.argsort(which, kind="stable")[np.count_nonzero(which < 0) :]
    offsets = np.append(0, np.cumsum(sizes[kept]))
    ids = of_groups.take(pa.array(kept)).to_pylist()
    groups = Groups(torch.from_numpy(members), torch.from_numpy(offsets), n_rows=len(instances), ids=ids)
    return groups, replace(observed, z=observed.z[kept]), kept, problems
