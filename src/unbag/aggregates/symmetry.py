"""Permutations of the classes that leave observations unchanged, so that they do not identify which class is which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate
from unbag.data.groups import Groups

Symmetry = Literal["none", "reversal", "any"] | tuple[tuple[int, ...], ...]
"""Permutations that fit as well: none, the reverse order, any, or any within each of several sets of classes."""

# A symmetry that holds for random predictions and so many groups, taken from everywhere, is no accident.
GROUPS_TO_TRY = 200
MEMBERSHIPS_AT_ONCE = 2**17
MAX_CLASSES = 64
"""With more classes, only tables of counts are searched for interchangeable ones."""
MAX_DIFFERING = 0.05
"""Classes are interchangeable within sampling error if their counts differ in at most this share of the groups."""
SAMPLING_ERRORS = 3.0
CHANCE = 0.001
"""Probability at most, over all pairs of classes, that counts of unrelated classes agree so often."""


class Checked(Protocol):
    """Observations that were checked, such as :class:`unbag.training.Observations`."""

    @property
    def aggregate(self) -> Aggregate: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def checked(self) -> Tensor: ...
    @property
    def n_classes(self) -> int: ...


class CheckedSet(NamedTuple):
    """The same, for those who have checked them."""

    aggregate: Aggregate
    groups: Groups
    checked: Tensor
    n_classes: int


def find_symmetry(observations: Sequence[Checked]) -> Symmetry:
    """Return which permutations of the classes leave the likelihood of all observations as it is.

    Classes whose counts are equal in all groups, or in all but a few, are interchangeable.

    Examples
    --------
    >>> from unbag import LabelProportions, OrdinalRank, OrdinalTriplet, PairwiseSimilarity
    >>> from unbag.training import Observations
    >>> pairs = Groups.from_tuples([[0, 1], [1, 2]])
    >>> find_symmetry([Observations(PairwiseSimilarity(), pairs, [1, 0], 3)])
    'any'
    >>> find_symmetry([Observations(OrdinalRank(), pairs, [1, 0], 3)])
    'none'
    >>> find_symmetry([Observations(OrdinalTriplet(), Groups.from_tuples([[0, 1, 2]]), [1], 3)])
    'reversal'
    >>> find_symmetry([Observations(LabelProportions(), Groups.from_sizes([3, 4]), [[1, 1, 1], [2, 0, 2]], 3)])
    ((0, 2),)
    """
    k = observations[0].n_classes
    numbers = list(range(k))
    # A swap and a rotation together make all permutations.
    if all(_fits_as_well(observations, order) for order in ([1, 0, *numbers[2:]], [*numbers[1:], 0])):
        return "any"
    counted = any(map(has_counts, observations))  # whose classes have no order
    if not counted and _fits_as_well(observations, numbers[::-1]):
        return "reversal"
    blocks = _find_interchangeable(observations)
    if len(blocks) == 1 and len(blocks[0]) == k:
        return "any"
    return blocks or "none"


def symmetry_of(aggregate: Aggregate, n_classes: int) -> Symmetry:
    """Return the same for a kind of observation, by what it observes of labels drawn at random.

    Examples
    --------
    >>> from unbag import FromFunction
    >>> symmetry_of(FromFunction(lambda labels: len(set(labels))), 3)
    'any'
    """
    size = aggregate.size or 3
    labels = torch.randint(n_classes, (GROUPS_TO_TRY * size,), generator=torch.Generator().manual_seed(0))
    groups = Groups.from_sizes([size] * GROUPS_TO_TRY)
    z = aggregate.check(aggregate.observe(labels, groups, n_classes), groups, n_classes)
    return find_symmetry([CheckedSet(aggregate, groups, z, n_classes)])


def count_differences(one: Checked, first: int, second: int) -> tuple[int, int]:
    """Return in how many groups the counts of two classes differ, and in how many either class occurs."""
    codes, absent = _number_counts(one)
    a, b = codes[:, first], codes[:, second]
    relevant = (a != absent) | (b != absent)
    return int((a != b)[relevant].sum()), int(relevant.sum())


def has_counts(one: Checked) -> bool:
    """Return whether a column of what was observed describes how many members are of a class."""
    return one.aggregate.outcome in ("class_counts", "published_counts")


def _find_interchangeable(observations: Sequence[Checked]) -> tuple[tuple[int, ...], ...]:
    """Return sets of at least two classes that can be interchanged with each other."""
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 (slow to import)

    k = observations[0].n_classes
    counted = [one for one in observations if has_counts(one)]
    others = [one for one in observations if not has_counts(one)]
    if others and k > MAX_CLASSES:
        return ()
    alike = ~np.eye(k, dtype=bool)
    for one in counted:
        alike &= _have_equal_counts(one)
    for one in others:
        alike &= _have_equal_posteriors(one)
    linked = np.zeros((k, k), dtype=bool)
    for first, second in np.argwhere(np.triu(alike)).tolist():
        order = list(range(k))
        order[first], order[second] = second, first
        linked[first, second] = _fits_as_well(others, order)
    part = connected_components(linked, directed=False)[1]
    blocks = [tuple(np.flatnonzero(part == number).tolist()) for number in range(part.max() + 1)]
    return tuple(block for block in blocks if len(block) > 1)


def _number_counts(one: Checked) -> tuple[np.ndarray, int]:
    """Return a number for each distinct observation of a class, (groups, classes), and that of a class that is absent.

    Published counts have no number for absence: -1.
    """
    checked = one.checked.cpu().numpy()
    if one.aggregate.outcome == "class_counts":
        return checked.astype(np.int64), 0
    values, codes = np.unique(checked.reshape(-1, checked.shape[-1]), axis=0, return_inverse=True)
    absent = np.flatnonzero((values[:, :2] == 0).all(1) & ~values[:, 2:].any(1))
    return codes.reshape(checked.shape[:2]), int(absent[0]) if len(absent) == 1 else -1


def _have_equal_counts(one: Checked) -> np.ndarray:
    """Return which pairs of classes have counts that are equal in all groups, or nearly all, (classes, classes)."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    codes, absent = _number_counts(one)
    k = codes.shape[1]
    _, codes = np.unique(np.append(codes.ravel(), absent), return_inverse=True)
    codes, absent = codes[:-1].reshape(-1, k), int(codes[-1])
    shares = np.stack([np.bincount(column, minlength=codes.max() + 1) / len(codes) for column in codes.T])  # (k, codes)
    present = codes != absent
    alike = np.zeros((k, k), dtype=bool)
    for first in range(k):
        relevant = (present[:, [first]] | present).sum(0)
        differ = (codes[:, [first]] != codes).sum(0)
        # How often counts would be equal if they were unrelated, where either class occurs.
        both_absent = shares[first, absent] * shares[:, absent]
        equal = (shares @ shares[first] - both_absent) / np.maximum(1 - both_absent, 1e-12)
        limit = MAX_DIFFERING * relevant + SAMPLING_ERRORS * np.sqrt(MAX_DIFFERING * relevant)
        log_chance = binom.logcdf(differ, np.maximum(relevant, 1), np.clip(1 - equal, 0, 1)) + 2 * log(k)
        nearly = (differ <= limit) & (log_chance < log(CHANCE))
        alike[first] = (relevant > 0) & ((differ == 0) | nearly)
    return alike & ~np.eye(k, dtype=bool)


def _have_equal_posteriors(one: Checked) -> np.ndarray:
    """Return which pairs of classes have the same posterior if predictions are uniform, as those interchangeable do."""
    alike = np.ones((one.n_classes, one.n_classes), dtype=bool)
    for run, z in _some_groups(one):
        with torch.no_grad():
            uniform = torch.zeros(run.total, one.n_classes, dtype=torch.float64)
            posterior = one.aggregate.checked_evidence(uniform, run, z).posterior.nan_to_num().numpy()
        for first in range(one.n_classes):
            alike[first] &= (np.abs(posterior - posterior[:, [first]]) < 1e-6).all(0)
    return alike


def _fits_as_well(observations: Sequence[Checked], order: list[int]) -> bool:
    return all(_set_fits_as_well(one, order) for one in observations)


def _set_fits_as_well(one: Checked, order: list[int]) -> bool:
    random = torch.Generator().manual_seed(0)
    for run, z in _some_groups(one):
        logits = torch.randn(run.total, one.n_classes, generator=random, dtype=torch.float64)
        as_named, renamed = (_log_likelihood(one.aggregate, own, run, z) for own in (logits, logits[:, order]))
        if not torch.allclose(as_named, renamed, rtol=1e-6, atol=1e-6):
            return False
    return True


def _some_groups(one: Checked) -> Iterator[tuple[Segments, Tensor]]:
    """Yield the smallest of some groups, which mostly is enough to refute a symmetry, then the others in parts."""
    n = len(one.groups)
    some = torch.arange(0, n, max(1, n // GROUPS_TO_TRY))
    some = some[one.groups.sizes.cpu()[some].argsort(stable=True)]
    for part in (some[:1], some[1:])[: len(some)]:
        groups, checked = one.groups.to("cpu").take(part), one.checked.cpu()[part]
        for which, _, run in groups.segments.runs(MEMBERSHIPS_AT_ONCE):
            yield run, checked[which]


def _log_likelihood(aggregate: Aggregate, logits_of_members: Tensor, segments: Segments, z: Tensor) -> Tensor:
    with torch.no_grad():
        return aggregate.checked_evidence(logits_of_members, segments, z).log_likelihood
