"""Diagnosis of observations and rows before a model is fitted."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag.aggregates import Aggregate
from unbag.aggregates.observations import Observations
from unbag.aggregates.registry import find_aggregate
from unbag.data.groups import Groups
from unbag.data.row_source import Rows
from unbag.data.weights import weights_by_answer
from unbag.diagnostics.registry import Context, run_checks
from unbag.training.group_subsets import excerpt


def diagnose_rows(context: Context, X: Rows) -> list[Finding]:
    """Run the checks of rows, of an excerpt if these are sparse or on disk; labels of rows alone have none."""
    if all(context.labels) and context.labels:
        return []
    table, sets = excerpt(X, context.sets)
    n_groups = context.n_groups or sum(len(s.groups) for s in context.sets)
    subjects = context.subjects if len(table) == len(X) else None
    return run_checks("rows", replace(context, X=table.double(), sets=sets, n_groups=n_groups, subjects=subjects))


def diagnose(
    aggregate: Aggregate | str,
    groups: Groups,
    z: Any,
    n_classes: int,
    X: Any = None,
    *,
    group_weights: Any = None,
    sampling: Any = None,
) -> list[Finding]:
    """Find what the observations of groups do not identify, and what is suspicious about the rows.

    Observations that all agree are not fatal by themselves: pairs that all differ still separate classes. Those that a
    model explains which predicts the same for every row are, because no model is better.

    Parameters
    ----------
    aggregate, groups, z, n_classes
        Kind of the observations or its name, groups, observations and number of classes.
    X
        Rows to look at, too: copies, columns that contain the group or the label, more columns than groups.
    group_weights, sampling
        As in :class:`unbag.AggregateClassifier`.

    Examples
    --------
    >>> from unbag import MultipleInstance
    >>> for finding in diagnose(MultipleInstance(), Groups.from_sizes([3, 2]), [1, 1], n_classes=2):
    ...     print(finding.fatal, finding.message)
    True a model that predicts class 1 for every row explains all 2 observations, so that nothing else can be ...
    """
    s = Observations(find_aggregate(aggregate), groups, z, n_classes, group_weights=group_weights)
    if sampling is not None:
        weights_by_answer(sampling, s.z)  # an error here, as in a fit
    context = Context([s.counting()], list(range(n_classes)), sampling=[sampling])
    findings = run_checks("observations", context)
    if X is not None:
        rows = np.array(X.cpu() if isinstance(X, Tensor) else X, dtype=np.float64)
        findings += diagnose_rows(context, torch.from_numpy(rows))
    return findings
