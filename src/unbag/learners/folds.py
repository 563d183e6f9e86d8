"""Assign groups and rows to folds, such that as little as possible is learned from rows that are held out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from unbag.training import Observations

MAX_LOST_SHARE = 0.3
"""Share of the groups of a set that a fold may hold out to keep the held-out rows out of training: pairs in 8 folds
23 %, triplets 33 %. Models of so many fewer triplets were 4 points less accurate."""


class Folds(NamedTuple):
    """Which groups each fold holds out, and which fold predicts each membership."""

    members: Tensor
    """Fold whose model predicts each membership of all sets, -1 where none does, shape ``(memberships,)``."""
    groups: list[list[Tensor]]
    """For each fold and set, a flag for each group that is held out."""


def assign_folds(sets: Sequence[Observations], n_rows: int, subjects: Tensor | None, n_folds: int, seed: int) -> Folds:
    """Assign groups and rows to folds.

    Rows that groups or subjects connect are held out together if they fall into enough parts. Otherwise single rows, or
    subjects, are held out together with all groups that they belong to; the other members of these groups are predicted
    by other folds. Where that would leave too few groups for training, groups are held out although their rows may be
    in other groups. A set of one group is then never held out.
    """
    generator = torch.Generator().manual_seed(seed)
    judged = [s for s in sets if _is_judged(s)]
    parts = _connect(judged, n_rows, subjects)
    sizes = torch.bincount(parts)
    connected = len(sizes) >= n_folds and int(sizes.max()) <= n_rows / 2
    if not connected:
        parts = torch.arange(n_rows) if subjects is None else subjects
        sizes = torch.bincount(parts)
    of_rows = (torch.randperm(len(sizes), generator=generator) % n_folds)[parts]
    groups = [[_groups_with(s, of_rows == n) for s in sets] for n in range(n_folds)]
    lost = max(
        float(torch.stack([flags[place] for flags in groups]).double().mean())
        for place, s in enumerate(sets)
        if _is_judged(s)
    )
    if not connected and lost > MAX_LOST_SHARE:
        return _assign_groups(sets, n_folds, generator)
    of_members = [of_rows[s.groups.members] if _is_judged(s) else -torch.ones_like(s.groups.members) for s in sets]
    return Folds(torch.cat(of_members), groups)


def _assign_groups(sets: Sequence[Observations], n_folds: int, generator: torch.Generator) -> Folds:
    numbers = []
    for s in sets:
        n = len(s.groups)
        held_out = n > 1 and _is_judged(s)
        numbers.append(torch.randperm(n, generator=generator) % n_folds if held_out else torch.full((n,), -1))
    of_members = [s.groups.segments.expand(own) for s, own in zip(sets, numbers, strict=True)]
    return Folds(torch.cat(of_members), [[own == n for own in numbers] for n in range(n_folds)])


def _is_judged(observations: Observations) -> bool:
    return not observations.aggregate.describes_all_rows


def _groups_with(observations: Observations, rows: Tensor) -> Tensor:
    """Return a flag for each group that contains one of the flagged rows and may be held out."""
    groups = observations.groups
    if not _is_judged(observations):
        return torch.zeros(len(groups), dtype=torch.bool)
    return groups.segments.sum(rows[groups.members].long()) > 0


def _connect(sets: Sequence[Observations], n_rows: int, subjects: Tensor | None) -> Tensor:
    """Return the connected part of each row, where rows are linked by groups and subjects.

    Parts are numbered by their first group, so that folds do not depend on the order of rows.
    """
    members = [s.groups.members for s in sets]
    links = [s.groups.segments.index for s in sets]
    if subjects is not None:
        members.append(torch.arange(n_rows))
        links.append(subjects)
    nodes, first = [], n_rows
    for link in links:
        nodes.append(link + first)
        first += int(link.max()) + 1
    edges = (torch.cat(members).numpy(), torch.cat(nodes).numpy())
    graph = coo_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(first, first))
    parts = connected_components(graph, directed=False)[1]
    in_order = parts[torch.cat([*members, torch.arange(n_rows)]).numpy()]
    distinct, position = np.unique(in_order, return_index=True)
    number = np.empty(parts.max() + 1, dtype=np.int64)
    number[distinct[position.argsort()]] = np.arange(len(distinct))
    return torch.from_numpy(number[parts[:n_rows]])
