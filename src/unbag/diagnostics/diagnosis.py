"""Diagnosis of what observations cannot tell (identifiability), before a model is trained on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import format_indices
from unbag._utils.findings import Finding
from unbag.aggregates import Aggregate
from unbag.aggregates.registry import find_aggregate
from unbag.aggregates.statements import n_missing
from unbag.aggregates.symmetry import CheckedSet, find_symmetry
from unbag.data.groups import Groups
from unbag.diagnostics.row_diagnosis import diagnose_rows, read_table
from unbag.diagnostics.sampling import find_unlikely_answers, weights_by_answer
from unbag.published import HIGH, NOISE
from unbag.training import Observations

# Below this correlation between group and class, proportions hardly differ. Rows put together at random in groups of m
# have about 1 / sqrt(m), so that only groups of ten thousand and more would reach it by chance.
HARDLY = 0.01

# Below this share of the bits of a label, observations hold little: counts of two classes in groups of a thousand, or
# bags of a hundred that are positive as often as negative.
LITTLE = 0.01


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
    """Say what the observations of these groups cannot tell about the classes, and what is suspicious about the rows.

    Observations that all agree are not fatal by themselves: pairs that all differ still separate classes. Those that a
    model explains which calls every row the same are, because that model is as good as any.

    Parameters
    ----------
    aggregate, groups, z, n_classes
        What was observed, an aggregate or its name, of which rows.
    X
        The rows, if they are to be looked at, too: columns that tell the group or the answer, copies in several groups,
        more columns than groups can tell about.
    group_weights, sampling
        As in :class:`unbag.AggregateClassifier`.

    Examples
    --------
    >>> from unbag import MultipleInstance
    >>> for finding in diagnose(MultipleInstance(), Groups.from_sizes([3, 2]), [1, 1], n_classes=2):
    ...     print(finding.fatal, finding.message)
    True a model that calls every row class 1 explains all 2 observations, so that nothing else can be learned from them
    """
    one = Observations(find_aggregate(aggregate), groups, z, n_classes, group_weights=group_weights)
    if sampling is not None:
        weights_by_answer(sampling, one.z)  # refused here as in a fit
    findings = diagnose_checked(one, sampling)
    if X is not None:
        findings += diagnose_rows(read_table(X), [CheckedSet(one.aggregate, groups, one.checked, n_classes)])
    return findings


def diagnose_checked(one: Observations, sampling: Any = None) -> list[Finding]:
    """Return the same of a set of observations, whose weights have what sampling says in them."""
    aggregate, groups, checked, n_classes = one.aggregate, one.groups, one.checked, one.n_classes
    findings = [*_single_group(groups)] or [*_one_class_explains_all(aggregate, groups, checked, n_classes)]
    counted = aggregate.outcome == "class_counts"
    if not findings:
        if counted:
            findings += _few_directions(checked)
        else:
            findings += _same_observations(one.z)
            findings += _few_observations(groups, n_classes)
        findings += _little_information(aggregate.information(checked, groups, n_classes), groups, n_classes)
        if sampling is None:
            findings += find_unlikely_answers(one)
    if aggregate.outcome in ("class_counts", "published_counts"):
        findings += _missing_classes(checked if counted else checked[..., HIGH])
    findings += _unnamed_classes(one)
    return [*findings, *find_rows_without_group([groups], groups.n_rows)]


def drop_answered(findings: Sequence[Finding], *, names: bool, borders: bool) -> list[Finding]:
    """Leave out what something else tells: which class is which, and where one ends and the next begins.

    Parameters
    ----------
    findings
        Of one set.
    names, borders
        Whether labelled rows, shares of the classes or another set tell these.
    """
    answered = {"unnamed_classes": names, "unknown_borders": borders}
    return [finding for finding in findings if not answered.get(finding.kind, False)]


def _single_group(groups: Groups) -> Iterator[Finding]:
    if len(groups) == 1:
        yield Finding(
            "single_group",
            f"there is only 1 group, of {groups.max_size} rows, with which no other can be compared",
            fatal=True,
        )


def _one_class_explains_all(aggregate: Aggregate, groups: Groups, z: Tensor, n_classes: int) -> Iterator[Finding]:
    # Where all members have the same label, groups of one size are observed alike: one of each is enough to look at.
    sizes, which = groups.sizes.unique(return_inverse=True)
    one_of_each = Groups.from_sizes(sizes)
    for label in range(n_classes):
        if aggregate.outcome == "published_counts":
            explained = not z[..., NOISE].any() and bool((z[:, label, HIGH] >= groups.sizes + n_missing(z)).all())
        else:
            seen = aggregate.observe(torch.full_like(one_of_each.members, label), one_of_each, n_classes)
            explained = torch.equal(aggregate.check(seen, one_of_each, n_classes)[which], z)
        if explained:
            yield Finding(
                "one_class_explains_all",
                f"a model that calls every row class {label} explains all {len(groups)} observations, "
                "so that nothing else can be learned from them",
                fatal=True,
            )
            return


def _same_observations(z: Tensor) -> Iterator[Finding]:
    if bool((z == z[0]).all()):
        yield Finding(
            "same_observations",
            f"all {len(z)} observations are {z[0].tolist()}, so that groups cannot be compared with each other; "
            "look for groups that were left out",
        )


def _few_observations(groups: Groups, n_classes: int) -> Iterator[Finding]:
    distinct = len(groups) if groups.uniform_size is None else len(groups.to_tuples().unique(dim=0))
    if distinct < n_classes:
        yield Finding(
            "few_observations", f"only {distinct} different groups are there to tell {n_classes} classes apart"
        )


def _few_directions(counts: Tensor) -> Iterator[Finding]:
    """Look in how many ways proportions differ; to tell k classes apart by mixtures of them takes k - 1."""
    counts = counts[:, counts.any(0)]
    correlations = _correlations(counts.double())
    n_groups, needed = len(counts), counts.shape[1] - 1
    directions = int((correlations >= HARDLY).sum())
    if directions == 0:
        yield Finding(
            "same_observations",
            f"the proportions of all {n_groups} groups are nearly the same (correlation between group and class at "
            f"most {correlations[0]:.3f}), so that only the exact counts inside each group can tell classes apart",
        )
    elif directions < needed:
        yield Finding(
            "few_observations",
            f"the proportions of {n_groups} groups vary in {directions} of the {needed} directions that {needed + 1} "
            f"classes take (the next correlation between group and class is {correlations[directions]:.3f}), so that "
            "classes whose shares rise and fall together are hard to tell apart",
        )


def _correlations(counts: Tensor) -> Tensor:
    """Return the canonical correlations between group and class, from 0 to 1, largest first: (classes - 1,)."""
    shares = counts / counts.sum()
    by_chance = shares.sum(1, keepdim=True) * shares.sum(0)  # were all groups mixed alike: (groups, classes)
    excess = (shares - by_chance) / by_chance.sqrt()
    return torch.linalg.eigvalsh(excess.mT @ excess).clamp(0, 1).sqrt().flip(0)[:-1]


def _little_information(bits: float | None, groups: Groups, n_classes: int) -> Iterator[Finding]:
    if bits is None:
        return
    per_member, label = bits / len(groups.members), log2(n_classes)
    if per_member < LITTLE * label:
        yield Finding(
            "little_information",
            f"the observations of {len(groups)} groups, of {len(groups.members) / len(groups):.4g} members on average, "
            f"hold at most {per_member:.2g} bits per member, where a label holds {label:.2g}; smaller groups hold more",
        )


def _missing_classes(counts: Tensor) -> Iterator[Finding]:
    missing = ~counts.any(0)
    if bool(missing.any()):
        yield Finding(
            "missing_classes",
            f"none of the {len(counts)} groups has a member of {format_indices('class number', missing)}; "
            f"the model can only learn the {int((~missing).sum())} of {len(missing)} classes that occur",
        )


def _unnamed_classes(one: Observations) -> Iterator[Finding]:
    name, k = type(one.aggregate).__name__, one.n_classes
    symmetry, advice = find_symmetry([one]), "name them with name_classes and a few labelled rows"
    if symmetry == "any":
        yield Finding(
            "unnamed_classes",
            f"{name} tells which rows are alike, but not which of the {k} classes they are: {advice}",
        )
    elif symmetry == "reversal":
        yield Finding("unnamed_classes", f"{name} cannot tell the order of the {k} classes from its reverse: {advice}")
    if symmetry != "any" and one.aggregate.size is not None and one.aggregate.outcome == "yes_no" and k > 2:
        yield Finding(
            "unknown_borders",
            f"{name} tells the order of rows, but hardly where one of the {k} classes ends and the next begins, "
            "so that nobody knows how often predictions are right: give the shares of the classes with class_shares=, "
            "or a few labelled rows as a further set",
        )


def find_rows_without_group(sets: Sequence[Groups], n_rows: int | None) -> Iterator[Finding]:
    """Say how many rows are in no group of any set, where the number of rows is known."""
    grouped = len(torch.cat([groups.members for groups in sets]).unique())
    if n_rows is not None and grouped < n_rows:
        yield Finding(
            "rows_without_group",
            f"the groups hold {grouped} of {n_rows} rows; the others take no part in training",
        )
