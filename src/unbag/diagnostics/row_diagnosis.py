"""Diagnosis of rows before training: more columns than groups, copies, columns that tell the group or the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import lgamma, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import format_indices
from unbag._utils.findings import Finding
from unbag.aggregates.symmetry import Checked
from unbag.data.groups import Groups
from unbag.diagnostics.tallies import CHANCE, find_coding, log_orders, once_in

# Copies in fewer rows than this share change no figure that anybody would notice.
FEW_COPIES = 0.01
# A number of chance events is not larger than its expectation by so many standard deviations. Where values are few, the
# expectation is rough: it must be exceeded by a factor, too.
DEVIATIONS = 5
FACTOR = 10

# Columns are first looked at in so many groups, or rows; those that tell the answer do so there, too.
FIRST_GROUPS = 32
FIRST_ROWS = 1000
NUMBERS_AT_ONCE = 2**22


def read_table(X: Any) -> Tensor:
    """Return rows as numbers; NaN where one is missing."""
    return torch.from_numpy(np.array(X.cpu() if isinstance(X, Tensor) else X, dtype=np.float64))


def diagnose_rows(
    X: Tensor, sets: Sequence[Checked], names: Sequence[Any] | None = None, n_groups: int | None = None
) -> Iterator[Finding]:
    """Say what is suspicious about the rows of observed groups.

    Parameters
    ----------
    X
        All rows, a table or images.
    sets
        What was observed of which rows.
    names
        Of the columns of a table.
    n_groups
        How many groups there are, where these are some of them.
    """
    yield from find_few_groups(X, sets, n_groups)
    if X.ndim == 2:
        yield from find_missing_columns(X, torch.cat([one.groups.members for one in sets]), names)
    for one in sets:
        if one.groups.max_size > 1:
            yield from find_copies(X, one.groups)
            if X.ndim == 2:
                yield from find_telling_columns(X, one, names)


def find_few_groups(X: Tensor, sets: Sequence[Checked], n_groups: int | None = None) -> Iterator[Finding]:
    """Say where no column of a table varies, or groups are fewer than columns, the weights of a linear model."""
    if X.ndim != 2:
        return
    columns = int(_varying(X, torch.cat([one.groups.members for one in sets])).sum())
    if columns == 0:
        yield Finding(
            "constant_columns",
            f"all {X.shape[1]:,} columns of X are the same in every row, so that no row can be told from another",
            fatal=True,
        )
    groups = sum(len(one.groups) for one in sets) if n_groups is None else n_groups
    compared = groups - len(sets)  # with the first of its set
    if compared < columns:
        yield Finding(
            "few_groups",
            f"{groups:,} groups can be compared in {compared:,} ways, fewer than the {columns:,} columns, so that a "
            "linear model can explain whatever was observed; collect more groups or leave columns out, and believe "
            "what left-out groups say",
        )


def find_missing_columns(X: Tensor, members: Tensor, names: Sequence[Any] | None) -> Iterator[Finding]:
    """Say which columns have no value in any row of a group, where others have."""
    missing = X[members.unique()].isnan().all(0)
    if 0 < int(missing.sum()) < len(missing):
        yield Finding(
            "missing_columns",
            f"{format_indices('column', missing, _namer(names))} of X: no value in any row of the groups, so that "
            "nothing can be learned from it; leave it out",
        )


def _varying(X: Tensor, members: Tensor) -> Tensor:
    """Return which columns differ between members, (columns,)."""
    rows = X[members.unique()]
    return ((rows != rows[0]) & ~(rows.isnan() & rows[0].isnan())).any(0)


def find_copies(X: Tensor, groups: Groups) -> Iterator[Finding]:
    """Say how many rows have an exact copy in another group, if different rows hardly ever agree in half the columns.

    Where columns hold few values, rows agree by chance. That chance is at most the one to agree in half of the columns,
    which rows that differ in others show.
    """
    X = X.reshape(len(X), -1)
    some = X[:FIRST_ROWS].sort(0).values
    variety = (some[1:] != some[:-1]).sum(0)
    order = variety.argsort(descending=True, stable=True)[: int((variety > 0).sum())]
    if len(order) < 2:
        return
    halves = torch.stack([_digest(X, order[first::2])[groups.members] for first in (0, 1)], 1)  # (memberships, 2)
    distinct, copy = halves.unique(dim=0, return_inverse=True)
    several = _differ(copy, groups.members, len(distinct)) & _differ(copy, groups.segment, len(distinct))
    rows = len(groups.members.unique())
    copied = len(groups.members[several[copy]].unique())
    by_chance = max(float(_is_repeated(distinct[:, half]).double().mean()) for half in (0, 1)) * rows
    if copied >= FEW_COPIES * rows and copied > max(
        by_chance + DEVIATIONS * max(by_chance, 1) ** 0.5, FACTOR * by_chance
    ):
        yield Finding(
            "copies",
            f"{copied:,} of {rows:,} rows ({copied / rows:.0%}) have an exact copy in another group, chance makes "
            f"at most {by_chance:,.0f}: left-out groups are no test of rows that were learned by heart; keep the "
            "copies of a row in one group, or take them out",
        )


def _digest(X: Tensor, columns: Tensor) -> Tensor:
    """Return a number for each row, the same for rows that agree in some columns, (rows,)."""
    random = torch.Generator().manual_seed(0)
    odd = 2 * torch.randint(2**62, (len(columns),), generator=random) + 1
    digests = []
    for rows in X.split(max(1, NUMBERS_AT_ONCE // X.shape[1])):
        bits = (rows[:, columns].double() + 0.0).view(torch.int64)  # of minus zero as of zero
        bits = (bits ^ (bits >> 32)) * -7046029254386353131
        digests.append(((bits ^ (bits >> 32)) * odd).sum(1))
    return torch.cat(digests)


def _differ(which: Tensor, values: Tensor, n: int) -> Tensor:
    """Return for each of n sets of entries whether their values differ, (n,)."""
    least, most = (
        torch.zeros(n, dtype=values.dtype).scatter_reduce_(0, which, values, how, include_self=False)
        for how in ("amin", "amax")
    )
    return least != most


def _is_repeated(values: Tensor) -> Tensor:
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return counts[place] > 1


def find_telling_columns(X: Tensor, one: Checked, names: Sequence[Any] | None) -> Iterator[Finding]:
    """Say which columns tell the group or the answer, where chance would not make any of the columns look so."""
    call = _namer(names)
    if len(one.groups.members.unique()) == len(one.groups.members) > len(one.groups) > 1:
        like_ids = _columns_like_group_ids(X, one.groups)
        if bool(like_ids.any()):
            yield Finding(
                "group_column",
                f"{format_indices('column', like_ids, call)} of X: one value in each of {len(one.groups):,} groups, "
                "and another in every group, like its id, so that a model can learn the observations by heart; leave "
                "it out unless it is known of new rows",
            )
    for column, log_chance in _columns_of_answers(X, one):
        yield Finding(
            "answer_column",
            f"column {call(column)} of X tells the answer: its values, taken for classes, give what was observed of "
            f"all {len(one.groups):,} groups, as chance does {once_in(log_chance)}; leave it out",
        )


def _namer(names: Sequence[Any] | None) -> Callable[[int], str]:
    return str if names is None else lambda column: f"{column} ({names[column]})"


def _columns_like_group_ids(X: Tensor, groups: Groups) -> Tensor:
    """Return which columns have one value in each group and another in every group, (columns,)."""
    sizes = groups.sizes.tolist()
    # Of all orders of these values, those that fill each group with one of them.
    log_chance = sum(lgamma(m + 1) for m in sizes) + lgamma(len(sizes) + 1) - lgamma(sum(sizes) + 1)
    none = torch.zeros(X.shape[1], dtype=torch.bool)
    if log_chance + log(X.shape[1]) >= log(CHANCE):
        return none
    first = X[groups.members[groups.offsets[:-1]]]  # (groups, columns)
    ordered = first.sort(0).values
    distinct = (ordered[1:] != ordered[:-1]).all(0).nonzero().flatten()
    same = (X[groups.members][:, distinct] == groups.segments.expand(first[:, distinct])).all(0)
    none[distinct[same]] = True
    return none


def _columns_of_answers(X: Tensor, one: Checked) -> Iterator[tuple[int, float]]:
    """Yield columns whose values are a coding of the classes, with the log-probability that chance makes one so."""
    if one.aggregate.is_noisy or one.aggregate.outcome == "published_counts":
        return
    candidates = torch.arange(X.shape[1])
    groups, checked = one.groups, one.checked
    for n in dict.fromkeys((min(FIRST_GROUPS, len(groups)), len(groups))):
        some, seen = groups.take(torch.arange(n)), checked[:n]
        rows, local = some.local()
        at_once = max(1, NUMBERS_AT_ONCE // len(rows))
        kept = [part[_gives(X[rows][:, part], one, local, seen)] for part in candidates.split(at_once)]
        candidates = torch.cat(kept)
        if len(candidates) == 0:
            return
    rows, local = groups.local()
    for column in candidates.tolist():
        log_chance = _log_chance(X[rows, column], one, local)
        if log_chance + log(X.shape[1]) < log(CHANCE):
            yield column, log_chance


def _gives(X: Tensor, one: Checked, groups: Groups, checked: Tensor) -> Tensor:
    """Return which columns, their values numbered as classes in one order or the other, give the observations."""
    ordered, order = X.sort(0)
    steps = torch.cat([torch.zeros_like(order[:1]), (ordered[1:] != ordered[:-1]).long()]).cumsum(0)
    n_values = steps[-1] + 1
    classes = torch.empty_like(steps).scatter_(0, order, steps)
    right = torch.zeros(X.shape[1], dtype=torch.bool)
    for column in ((n_values > 1) & (n_values <= one.n_classes)).nonzero().flatten().tolist():
        for labels in (classes[:, column], n_values[column] - 1 - classes[:, column]):
            seen = one.aggregate.check(one.aggregate.observe(labels, groups, one.n_classes), groups, one.n_classes)
            if one.aggregate.outcome == "class_counts":  # in whatever order
                seen, expected = seen.sort(1).values, checked.sort(1).values
            else:
                expected = checked
            right[column] |= torch.equal(seen, expected)
    return right


def _log_chance(values: Tensor, one: Checked, groups: Groups) -> float:
    n_values = len(values.unique())
    if one.aggregate.outcome == "class_counts":
        codes = values.unique(return_inverse=True)[1][groups.members].numpy()
        coding = find_coding(codes, groups.sizes.numpy(), one.checked.numpy())
        return 0.0 if coding is None else coding.log_chance
    # Answers about the same few rows are not independent: there are only so many ways to fill the rows.
    return log(2) + max(-log_orders(one.checked), -len(values) * log(n_values))
