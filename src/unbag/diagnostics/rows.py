"""Checks of the rows of observed groups: few groups for the columns, missing values, copies, columns of the group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import format_indices
from unbag._utils.findings import Finding
from unbag.data.groups import Groups
from unbag.data.scaling import fit_scaling
from unbag.diagnostics.leakage import CHANCE
from unbag.diagnostics.neighbors import check_near_duplicates
from unbag.diagnostics.registry import Context, register_check

MIN_COPIES = 0.01
"""Share of the rows below which copies change no figure."""
MAX_DEVIATIONS, MAX_FACTOR = 5, 10
"""A number of chance events exceeds its expectation by at most so many standard deviations and, because the expectation
is rough where values are few, by this factor."""
FIRST_ROWS = 1000
NUMBERS_AT_ONCE = 2**22
MIN_SIZE_EFFECT, SIZE_ERRORS = 0.1, 5.0
"""Difference between the share of a class among rows and its mean over groups, and its standard errors."""
MIN_GROUPS = 10
"""Fewer groups show no relation to their size or shares."""
MAX_WITHIN = 0.25
"""The variation of a column within groups explains at most this part of the labels if it holds the share of a class."""
MIN_CORRELATION = 0.5
"""Squared correlation at least of the shares of a class with the means of a column that holds them."""
MARGIN = 0.5
"""Part of the variation within groups that a property of rows has at least, given its rough slope."""


@register_check("rows")
def check_few_groups(context: Context) -> Iterator[Finding]:
    """Yield a finding if no column of a table varies, or if groups are fewer than columns."""
    X = context.X
    if X is None or X.ndim != 2:
        return
    rows = X[context.members]
    constant = fit_scaling(rows).factor == 0
    varying = int((~constant).sum())
    if varying == 0:
        message = f"all {X.shape[1]:,} columns of X are the same in every row, so that rows cannot be distinguished"
        yield Finding("constant_columns", message, fatal=True)
    elif bool(constant.any()):
        yield Finding(
            "constant_columns",
            f"{format_indices('column', constant, context.name_column)} of X: constant, or varying by no more than "
            "rounding errors, and ignored; measure in another unit if the differences matter",
        )
    n_groups = context.n_groups or sum(len(s.groups) for s in context.sets)
    compared = n_groups - len(context.sets)  # with the first of its set
    if compared < varying:
        yield Finding(
            "few_groups",
            f"{n_groups:,} groups can be compared in {compared:,} ways, fewer than the {varying:,} columns, so that a "
            "linear model can explain any observations; collect more groups or leave columns out, and trust only what "
            "held-out groups show",
        )


@register_check("rows")
def check_missing_columns(context: Context) -> Iterator[Finding]:
    """Yield the columns that have no value in any row of a group, if others have."""
    if context.X is None or context.X.ndim != 2:
        return
    missing = context.X[context.members].isnan().all(0)
    if 0 < int(missing.sum()) < len(missing):
        yield Finding(
            "missing_columns",
            f"{format_indices('column', missing, context.name_column)} of X: no value in any row of the groups, so "
            "that nothing can be learned from it; leave it out",
        )


@register_check("rows")
def check_copies(context: Context) -> Iterator[Finding]:
    """Yield how many rows have a copy, or a near-duplicate, in another group.

    If columns have few values, rows agree by chance. That chance is at most that of agreement in half of the columns,
    which rows that differ in others show.
    """
    copies = [f for s in context.sets if s.groups.max_size > 1 for f in _find_copies(context, s.groups)]
    yield from copies or check_near_duplicates(context)


@register_check("rows")
def check_share_columns(context: Context) -> Iterator[Finding]:
    """Yield columns that hold the observed share of a class in each group, exactly or with noise.

    If labels are independent given the columns, the mean of a column in a group of m rows predicts the share of a class
    with a variance of p (1 - p) / m, less what differences between the rows of a group explain. A column that is closer
    to the shares although it hardly varies within groups was computed from the counts. Where groups were drawn to have
    similar shares, every column is that close; therefore the shares must also correlate with the column, and it must
    vary less within groups than a property of rows with this relation to the labels.
    """
    from scipy.stats import f  # noqa: PLC0415 (slow to import)

    for s in context.sets:
        n, k, groups = len(s.groups), s.n_classes, s.groups
        if s.aggregate.outcome != "class_counts" or bool((groups.sizes < 2).any()) or n < MIN_GROUPS:
            continue
        m = groups.sizes.double()[:, None]
        shares = s.checked.double() / m  # (groups, classes)
        freedom = len(groups.members) - n
        variance = (m * shares * (1 - shares)).sum(0) / freedom  # of the label of a row in a group
        varying = (shares.amax(0) > shares.amin(0)).nonzero().flatten().tolist()
        log_limit = np.log(CHANCE / context.table.shape[1] / k)
        for columns in torch.arange(context.table.shape[1]).split(max(1, NUMBERS_AT_ONCE // len(groups.members))):
            values = context.table[:, columns][groups.members].double().nan_to_num()
            means = groups.segments.sum(values) / m
            within = (values - groups.segments.expand(means)).square().sum(0) / freedom
            centred = means - _mean(means, m)
            reported = torch.zeros(len(columns), dtype=torch.bool)
            for label in varying:
                y = (shares - _mean(shares, m))[:, [label]]
                slope = (m * centred * y).sum(0) / (m * centred.square()).sum(0).clamp(min=1e-300)
                residual = (m * (y - slope * centred).square()).sum(0)
                explained = slope.square() * within
                unexplained = (variance[label] - explained).clamp(min=1e-300)
                ratio = (residual / (n - 2) / unexplained).numpy()
                unlikely = torch.from_numpy(f.logcdf(ratio, n - 2, freedom)) < log_limit
                correlation = 1 - residual / (m * y.square()).sum().clamp(min=1e-300)
                held = unlikely & (explained < MAX_WITHIN * variance[label]) & (correlation >= MIN_CORRELATION)
                held &= ~reported
                # By chance, unrelated columns correlate; and a property of rows varies within groups as labels do.
                related = correlation / (1 - correlation).clamp(min=1e-15) * (n - 2)
                held &= torch.from_numpy(f.logsf(related.numpy(), 1, n - 2)) < log_limit
                gain = (m * centred * y).sum(0) / (m * y.square()).sum().clamp(min=1e-300)  # of the column
                expected = (MARGIN * gain.square() * variance[label]).clamp(min=1e-300)
                held &= torch.from_numpy(f.logcdf((within / expected).numpy(), freedom, n - 2)) < log_limit
                reported |= held
                for place in held.nonzero().flatten().tolist():
                    yield Finding(
                        "share_column",
                        f"column {context.name_column(int(columns[place]))} of X follows the share of class "
                        f"{context.classes[label]} in {n:,} groups (squared correlation {correlation[place]:.3f}) more "
                        "closely than independent labels permit, and hardly varies within groups: it was computed "
                        "from the counts; leave it out",
                    )


@register_check("observations")
def check_size_dependence(context: Context) -> Iterator[Finding]:
    """Yield classes whose share depends on the size of the group."""
    for s in context.sets:
        if s.aggregate.outcome != "class_counts" or s.groups.uniform_size is not None or len(s.groups) < MIN_GROUPS:
            continue
        sizes, shares = s.groups.sizes.double()[:, None], s.checked.double() / s.groups.sizes[:, None]
        of_rows, of_groups = _mean(shares, sizes), shares.mean(0)
        influence = (sizes / sizes.mean() * (shares - of_rows)) - (shares - of_groups)
        error = influence.std(0) / len(shares) ** 0.5
        difference = of_rows - of_groups
        label = int(difference.abs().argmax())
        if difference[label].abs() > max(MIN_SIZE_EFFECT, SIZE_ERRORS * float(error[label])):
            yield Finding(
                "size_dependent_shares",
                f"{of_rows[label]:.1%} of all rows are of class {context.classes[label]}, but {of_groups[label]:.1%} "
                "of the rows of an average group: its share depends on the size of the group, and an estimate of "
                "accuracy holds only for new rows with the same mixture of groups",
            )


def _mean(values: Tensor, sizes: Tensor) -> Tensor:
    """Return means over groups, weighted by their sizes."""
    return (sizes * values).sum(0) / sizes.sum()


def _find_copies(context: Context, groups: Groups) -> Iterator[Finding]:
    X, unit = context.table, groups.segment if context.subjects is None else context.subjects[groups.members]
    some = X[:FIRST_ROWS].sort(0).values
    variety = (some[1:] != some[:-1]).sum(0)
    order = variety.argsort(descending=True, stable=True)[: int((variety > 0).sum())]
    if len(order) < 2:
        return
    halves = torch.stack([_digest(X, order[first::2])[groups.members] for first in (0, 1)], 1)  # (memberships, 2)
    distinct, copy = halves.unique(dim=0, return_inverse=True)
    several = _differ(copy, groups.members, len(distinct)) & _differ(copy, unit, len(distinct))
    rows = len(groups.members.unique())
    copied = len(groups.members[several[copy]].unique())
    repeated = [distinct[:, half].unique(return_inverse=True, return_counts=True)[1:] for half in (0, 1)]
    by_chance = max(float((counts[place] > 1).double().mean()) for place, counts in repeated) * rows
    limit = max(by_chance + MAX_DEVIATIONS * max(by_chance, 1) ** 0.5, MAX_FACTOR * by_chance)
    if copied >= MIN_COPIES * rows and copied > limit:
        yield Finding(
            "copies",
            f"{copied:,} of {rows:,} rows ({copied / rows:.0%}) have an exact copy in another group, where chance "
            f"makes at most {by_chance:,.0f}: held-out groups do not show how well new rows are predicted; keep the "
            "copies of a row in one group, pass subjects=, or remove them",
        )


def _digest(X: Tensor, columns: Tensor) -> Tensor:
    """Return a number for each row, the same for rows that agree in some columns, (rows,)."""
    random = torch.Generator().manual_seed(0)
    odd = 2 * torch.randint(2**62, (len(columns),), generator=random) + 1
    digests = []
    for rows in X.split(max(1, NUMBERS_AT_ONCE // X.shape[1])):
        bits = (rows[:, columns].double() + 0.0).view(torch.int64)  # minus zero as zero
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
