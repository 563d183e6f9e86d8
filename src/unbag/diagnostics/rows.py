"""Checks of the rows of observed groups: few groups for the columns, missing values, copies, columns of the group."""

from __future__ import annotations

from collections.abc import Iterator

from unbag._utils.checks import format_indices
from unbag._utils.findings import Finding
from unbag.data.scaling import fit_scaling
from unbag.diagnostics.leakage import weighted_mean
from unbag.diagnostics.registry import Context, register_check

MIN_SIZE_EFFECT, SIZE_ERRORS = 0.1, 5.0
"""Difference between the share of a class among rows and its mean over groups, and its standard errors."""
MIN_GROUPS = 10
"""Fewer groups show no relation to their size or shares."""


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


@register_check("observations")
def check_size_dependence(context: Context) -> Iterator[Finding]:
    """Yield classes whose share depends on the size of the group."""
    for s in context.sets:
        if s.aggregate.outcome != "class_counts" or s.groups.uniform_size is not None or len(s.groups) < MIN_GROUPS:
            continue
        sizes, shares = s.groups.sizes.double()[:, None], s.checked.double() / s.groups.sizes[:, None]
        of_rows, of_groups = weighted_mean(shares, sizes), shares.mean(0)
        influence = (sizes / sizes.mean() * (shares - of_rows)) - (shares - of_groups)
        error = influence.std(0) / len(shares) ** 0.5
        difference = of_rows - of_groups
        label = int(difference.abs().argmax())
        if difference[label].abs() > max(MIN_SIZE_EFFECT, SIZE_ERRORS * float(error[label])):
            yield Finding(
                "size_dependent_shares",
                f"{of_rows[label]:.1%} of all rows are of class {context.classes[label]}, but {of_groups[label]:.1%} "
                "of the rows of an average group: its share depends on the size of the group, and an estimate of "
                "accuracy holds only for new rows with the same mixture of groups; add the size as a feature if it is "
                "known of new rows",
            )
