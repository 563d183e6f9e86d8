"""Checks of observations: what they do not identify, whatever the rows are."""

from collections.abc import Iterator
from math import log2

import numpy as np
import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag._utils.problems import NAMED, list_some
from unbag.aggregates.counts import n_missing
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import count_differences, find_symmetry, has_counts, is_uncertain
from unbag.data.groups import Groups
from unbag.diagnostics.registry import Context, register_check
from unbag.diagnostics.sampling import find_unlikely_answers
from unbag.published import HIGH, NOISE

# Below this correlation between group and class, proportions hardly differ. Groups of m random rows have about
# 1 / sqrt(m), so that only groups of ten thousand and more reach it by chance.
MIN_CORRELATION = 0.01
# Share of the information of a label below which observations contain little: counts of two classes in groups of a
# thousand, or bags of a hundred that are positive as often as negative.
MIN_INFORMATION = 0.01
# Difference between the share of a class among rows and its mean over groups, and number of groups. Chance is excluded
# by standard errors or, in few groups, where these are rough, by the share of the permutations with such a difference.
MIN_SIZE_EFFECT, MIN_GROUPS = 0.1, 10
SIZE_ERRORS, FEW_GROUPS, N_PERMUTATIONS, SIZE_CHANCE = 4.0, 200, 1999, 0.001


@register_check("observations")
def check_observations(context: Context) -> Iterator[Finding]:
    """Yield what each set of observations does not identify."""
    for number, s in enumerate(context.sets):
        if context.labels and context.labels[number]:
            continue
        findings = list(_describe_differences(s))
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
        sentences = [_describe_interchangeable(context, counted, block) for block in symmetry[:NAMED]]
        more = f"; and {len(symmetry) - NAMED} more sets of classes" if len(symmetry) > NAMED else ""
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


@register_check("observations")
def check_size_dependence(context: Context) -> Iterator[Finding]:
    """Yield classes whose share depends on the size of the group."""
    for s in context.sets:
        if s.aggregate.outcome != "class_counts" or s.groups.uniform_size is not None or len(s.groups) < MIN_GROUPS:
            continue
        sizes = s.groups.sizes.double()[:, None]
        shares = s.checked.double() / sizes
        of_rows, of_groups = s.checked.double().sum(0) / sizes.sum(), shares.mean(0)
        influence = (sizes / sizes.mean() * (shares - of_rows)) - (shares - of_groups)
        error = influence.std(0) / len(shares) ** 0.5
        difference = (of_rows - of_groups).abs()
        label = int(difference.argmax())
        if difference[label] > MIN_SIZE_EFFECT and (
            difference[label] > SIZE_ERRORS * error[label] or _is_related(sizes[:, 0], shares[:, label])
        ):
            yield Finding(
                "size_dependent_shares",
                f"{of_rows[label]:.1%} of all rows are of class {context.classes[label]}, but {of_groups[label]:.1%} "
                "of the rows of an average group: its share depends on the size of the group, and an estimate of "
                "accuracy holds only for new rows with the same mixture of groups; add the size as a feature if it is "
                "known of new rows",
            )


def find_classes(s: Observations) -> Tensor:
    """Return which classes may occur in groups whose counts were observed, (classes,)."""
    return (s.checked if s.aggregate.outcome == "class_counts" else s.checked[..., HIGH]).any(0)


def _is_related(sizes: Tensor, shares: Tensor) -> bool:
    """Return whether chance hardly pairs sizes and shares of few groups so that their covariance is as large."""
    if len(sizes) > FEW_GROUPS:
        return False
    values, centred = shares.numpy(), (sizes - sizes.mean()).numpy()
    orders = np.random.default_rng(0).permuted(np.tile(values, (N_PERMUTATIONS, 1)), axis=1)
    as_far = np.abs(orders @ centred) >= abs(values @ centred)
    return bool((1 + as_far.sum()) / (1 + N_PERMUTATIONS) <= SIZE_CHANCE)


def _describe_differences(s: Observations) -> Iterator[Finding]:
    """Yield whether observations differ enough to identify the classes, apart from their names."""
    n = len(s.groups)
    if n == 1:
        message = f"there is only 1 group, of {s.groups.max_size} rows, and no other to compare it with"
        yield Finding("single_group", f"{message}; collect more groups", fatal=True)
    elif (label := _find_explaining_class(s)) is not None:
        yield Finding(
            "one_class_explains_all",
            f"a model that predicts class {label} for every row explains all {n} observations, so that nothing else "
            "can be learned from them",
            fatal=True,
        )
    elif s.aggregate.outcome == "class_counts":
        yield from _find_few_directions(s.checked)
    else:
        if bool((s.z == s.z[0]).all()):
            yield Finding(
                "same_observations",
                f"all {n} observations are {s.z[0].tolist()}, so that groups cannot be compared with each other; "
                "look for groups that were left out",
            )
        distinct = n if s.groups.uniform_size is None else len(s.groups.to_tuples().unique(dim=0))
        if distinct < s.n_classes:
            message = f"{distinct} different groups are too few to identify {s.n_classes} classes; collect more"
            yield Finding("few_observations", message)


def _find_explaining_class(s: Observations) -> int | None:
    """Return a class that explains all observations if every row is of it."""
    z, sizes = s.checked, s.groups.sizes
    if s.aggregate.outcome == "class_counts":
        explains = (z == sizes[:, None]).all(0)
    elif s.aggregate.outcome == "published_counts":
        explains = ~z[..., NOISE].any() & (z[..., HIGH] >= (sizes + n_missing(z))[:, None]).all(0)
    else:  # if all members have the same label, groups of one size give one observation: one of each size is enough
        distinct, which = sizes.unique(return_inverse=True)
        groups = Groups.from_sizes(distinct)
        seen = [
            s.aggregate.observe(torch.full_like(groups.members, k), groups, s.n_classes) for k in range(s.n_classes)
        ]
        explains = torch.tensor([torch.equal(s.aggregate.check(each, groups, s.n_classes)[which], z) for each in seen])
    return int(explains.nonzero()[0]) if bool(explains.any()) else None


def _find_few_directions(counts: Tensor) -> Iterator[Finding]:
    """Yield in how many directions proportions vary; mixtures identify k classes if they vary in k - 1."""
    counts = counts[:, counts.any(0)]
    n_groups, k = counts.shape
    # The canonical correlations between group and class, from 0 to 1, largest first; the last one is 0.
    shares = counts.double() / counts.sum()
    by_chance = shares.sum(1, keepdim=True) * shares.sum(0)  # if all groups were mixed alike: (groups, classes)
    excess = (shares - by_chance) / by_chance.sqrt()
    squares = excess.mT @ excess if k < n_groups else excess @ excess.mT  # the smaller one has the same eigenvalues
    correlations = torch.linalg.eigvalsh(squares).clamp(0, 1).sqrt().flip(0)
    directions = int((correlations >= MIN_CORRELATION).sum())
    if directions == 0:
        yield Finding(
            "same_observations",
            f"the proportions of all {n_groups} groups are nearly the same (correlation between group and class at "
            f"most {correlations[0]:.3f}), so that only the exact counts inside each group identify classes",
        )
    elif directions < k - 1:
        yield Finding(
            "few_observations",
            f"the proportions of {n_groups} groups vary in {directions} of the {k - 1} directions that {k} classes "
            f"need (the next correlation between group and class is {correlations[directions]:.3f}), so that classes "
            "whose shares rise and fall together are hard to distinguish; collect groups with other shares",
        )


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
        names = list_some((context.classes[n] for n in missing.nonzero().flatten().tolist()), form=str)
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
    differ, n = max(count_differences(counted[0], block[0], other) for other in block[1:])
    if differ == 0:
        return f"{both} have equal counts in every group, so they cannot be told apart"
    reason = f"{both} have equal counts in {n - differ:,} of {n:,} groups in which they occur"
    if is_uncertain(counted[0]):
        reason = f"the counts of {both} differ by no more than their noise or intervals explain"
    return f"{reason}, so they are hard to distinguish"
