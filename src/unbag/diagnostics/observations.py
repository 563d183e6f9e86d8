"""Checks of observations: what they do not identify, whatever the rows are."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag._utils.problems import list_some
from unbag.aggregates.counts import n_missing
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import count_differences, find_symmetry, has_counts, is_uncertain
from unbag.data.groups import Groups
from unbag.diagnostics.registry import MAX_LISTED, Context, register_check
from unbag.diagnostics.sampling import find_unlikely_answers
from unbag.published import HIGH, NOISE

MIN_CORRELATION = 0.01
"""Below this correlation between group and class, proportions hardly differ.

Groups of m random rows have about 1 / sqrt(m), so that only groups of ten thousand and more reach it by chance."""
MIN_INFORMATION = 0.01
"""Share of the information of a label below which observations contain little: counts of two classes in groups of a
thousand, or bags of a hundred that are positive as often as negative."""


def describe_observations(s: Observations) -> Iterator[Finding]:
    """Yield what the observations of one set do not identify, apart from the names of classes."""
    aggregate, groups, n_classes = s.aggregate, s.groups, s.n_classes
    if len(groups) == 1:
        message = (
            f"there is only 1 group, of {groups.max_size} rows, and no other to compare it with; collect more groups"
        )
        yield Finding("single_group", message, fatal=True)
    elif (label := find_explaining_class(s)) is not None:
        yield Finding(
            "one_class_explains_all",
            f"a model that predicts class {label} for every row explains all {len(groups)} observations, "
            "so that nothing else can be learned from them",
            fatal=True,
        )
    elif aggregate.outcome == "class_counts":
        yield from _find_few_directions(s.checked)
    else:
        yield from _find_same_observations(s.z)
        yield from _find_few_groups(groups, n_classes)


def find_explaining_class(s: Observations) -> int | None:
    """Return a class that explains all observations if every row is of it."""
    # If all members have the same label, groups of one size give one observation: one of each size is enough.
    sizes, which = s.groups.sizes.unique(return_inverse=True)
    one_of_each = Groups.from_sizes(sizes)
    for label in range(s.n_classes):
        if s.aggregate.outcome == "published_counts":
            z = s.checked
            explained = not z[..., NOISE].any() and bool((z[:, label, HIGH] >= s.groups.sizes + n_missing(z)).all())
        else:
            seen = s.aggregate.observe(torch.full_like(one_of_each.members, label), one_of_each, s.n_classes)
            explained = torch.equal(s.aggregate.check(seen, one_of_each, s.n_classes)[which], s.checked)
        if explained:
            return label
    return None


@register_check("observations")
def check_observations(context: Context) -> Iterator[Finding]:
    """Yield what each set of observations does not identify."""
    for number, s in enumerate(context.sets):
        if context.labels and context.labels[number]:
            continue
        findings = list(describe_observations(s))
        if not any(f.fatal for f in findings):
            findings += _find_little_information(s)
            if context.sampling_of(number) is None:
                findings += find_unlikely_answers(s)
        yield from findings
        if has_counts(s):
            yield from _find_missing_classes(context, s)
        if not context.borders_known:
            yield from _find_unknown_borders(s)


@register_check("observations")
def check_symmetry(context: Context) -> Iterator[Finding]:
    """Yield which classes can be interchanged without a change of the observations."""
    if context.classes_named:
        return
    symmetry, k = context.symmetry, len(context.classes)
    kinds = ", ".join(dict.fromkeys(type(s.aggregate).__name__ for s in context.sets))
    advice = "name them with name_classes and a few labelled rows"
    counted = [s for s in context.sets if has_counts(s) and s.groups.max_size > 1]
    if symmetry == "any" and counted and k > 1:
        symmetry = (tuple(range(k)),)
    if isinstance(symmetry, tuple):
        sentences = [_describe_interchangeable(context, counted, block) for block in symmetry[:MAX_LISTED]]
        more = f"; and {len(symmetry) - MAX_LISTED} more sets of classes" if len(symmetry) > MAX_LISTED else ""
        yield Finding("interchangeable_classes", f"{'; '.join(sentences)}{more}; {advice}")
    elif symmetry == "any":
        message = f"{kinds} identifies which rows are alike, but not which of the {k} classes they are: {advice}"
        yield Finding("unnamed_classes", message)
    elif symmetry == "reversal":
        message = f"{kinds} does not identify whether the order of the {k} classes is reversed: {advice}"
        yield Finding("unnamed_classes", message)


@register_check("observations")
def check_rows_of_groups(context: Context) -> Iterator[Finding]:
    """Yield how many rows are in no group of any set, if the number of rows is known."""
    n_rows = context.n_rows
    if n_rows is None:
        n_rows = max((s.groups.n_rows or 0 for s in context.sets), default=0)
    grouped = len(context.members)
    if grouped < n_rows:
        message = f"the groups contain {grouped} of {n_rows} rows; the others take no part in training"
        yield Finding("rows_without_group", message)


def find_classes(s: Observations) -> Tensor:
    """Return which classes may occur in groups whose counts were observed, (classes,)."""
    return (s.checked if s.aggregate.outcome == "class_counts" else s.checked[..., HIGH]).any(0)


def _find_same_observations(z: Tensor) -> Iterator[Finding]:
    if bool((z == z[0]).all()):
        yield Finding(
            "same_observations",
            f"all {len(z)} observations are {z[0].tolist()}, so that groups cannot be compared with each other; "
            "look for groups that were left out",
        )


def _find_few_groups(groups: Groups, n_classes: int) -> Iterator[Finding]:
    distinct = len(groups) if groups.uniform_size is None else len(groups.to_tuples().unique(dim=0))
    if distinct < n_classes:
        yield Finding(
            "few_observations", f"{distinct} different groups are too few to identify {n_classes} classes; collect more"
        )


def _find_few_directions(counts: Tensor) -> Iterator[Finding]:
    """Yield in how many directions proportions vary; mixtures identify k classes if they vary in k - 1."""
    counts = counts[:, counts.any(0)]
    correlations = _compute_correlations(counts.double())
    n_groups, needed = len(counts), counts.shape[1] - 1
    directions = int((correlations >= MIN_CORRELATION).sum())
    if directions == 0:
        yield Finding(
            "same_observations",
            f"the proportions of all {n_groups} groups are nearly the same (correlation between group and class at "
            f"most {correlations[0]:.3f}), so that only the exact counts inside each group identify classes",
        )
    elif directions < needed:
        yield Finding(
            "few_observations",
            f"the proportions of {n_groups} groups vary in {directions} of the {needed} directions that {needed + 1} "
            f"classes need (the next correlation between group and class is {correlations[directions]:.3f}), so that "
            "classes whose shares rise and fall together are hard to distinguish; collect groups with other shares",
        )


def _compute_correlations(counts: Tensor) -> Tensor:
    """Return the canonical correlations between group and class, from 0 to 1, largest first: (classes - 1,)."""
    shares = counts / counts.sum()
    by_chance = shares.sum(1, keepdim=True) * shares.sum(0)  # if all groups were mixed alike: (groups, classes)
    excess = (shares - by_chance) / by_chance.sqrt()
    return torch.linalg.eigvalsh(excess.mT @ excess).clamp(0, 1).sqrt().flip(0)[:-1]


def _find_little_information(s: Observations) -> Iterator[Finding]:
    bits = s.aggregate.information(s.checked, s.groups, s.n_classes)
    n, label = len(s.groups.members), log2(s.n_classes)
    if bits is not None and bits / n < MIN_INFORMATION * label:
        yield Finding(
            "little_information",
            f"the observations of {len(s.groups)} groups, of {n / len(s.groups):.4g} members on average, contain at "
            f"most {bits / n:.2g} bits per member, where a label contains {label:.2g}; smaller groups contain more",
        )


def _find_missing_classes(context: Context, s: Observations) -> Iterator[Finding]:
    missing = ~find_classes(s)
    if bool(missing.any()):
        names = list_some((context.classes[n] for n in missing.nonzero().flatten().tolist()), MAX_LISTED, str)
        yield Finding(
            "missing_classes",
            f"none of the {len(s.groups)} groups has a member of class {names}; the model can only learn the "
            f"{int((~missing).sum())} of {len(missing)} classes that occur; leave the others out, or add groups that "
            "contain them",
        )


def _find_unknown_borders(s: Observations) -> Iterator[Finding]:
    k = s.n_classes
    if s.aggregate.size is not None and s.aggregate.outcome == "yes_no" and k > 2 and find_symmetry([s]) != "any":
        yield Finding(
            "unknown_borders",
            f"{type(s.aggregate).__name__} identifies the order of rows, but hardly where one of the {k} classes ends "
            "and the next begins, so that the accuracy is unknown: pass the shares of the classes with class_shares=, "
            "or a few labelled rows as a further set",
        )


def _describe_interchangeable(context: Context, counted: list[Observations], block: tuple[int, ...]) -> str:
    names = [repr(context.classes[number]) for number in block]
    both = f"{', '.join(names[:-1])} and {names[-1]}"
    if not counted:
        return f"the observations do not change if {both} are interchanged, so they cannot be told apart"
    differences = [count_differences(counted[0], block[0], other) for other in block[1:]]
    differ, n = max(differences)
    if differ == 0:
        return f"{both} have equal counts in every group, so they cannot be told apart"
    if is_uncertain(counted[0]):
        return (
            f"the counts of {both} differ by no more than their noise or intervals explain, so they can hardly be told "
            "apart"
        )
    return (
        f"{both} have equal counts in {n - differ:,} of {n:,} groups in which they occur, so they can hardly be told "
        "apart"
    )
