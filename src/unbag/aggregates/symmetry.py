"""Permutations of the classes that leave observations unchanged, so that they do not identify which class is which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate
from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups
from unbag.noise import KINDS
from unbag.published import HIGH, LOW, MISSING, NOISE, SCALE, estimate

Symmetry = Literal["none", "reversal", "any"] | tuple[tuple[int, ...], ...]
"""Permutations with the same likelihood: none, reversal, any, or any within each of several sets of classes."""

GROUPS_TO_TRY = 200
"""Number of groups with random predictions on which symmetries are tested."""
MEMBERSHIPS_AT_ONCE = 2**17
MAX_CLASSES = 64
"""With more classes, only tables of counts are searched for interchangeable ones."""
MAX_DIFFERING = 0.05
"""Classes are interchangeable within sampling error if their counts differ in at most this share of the groups."""
SAMPLING_ERRORS = 3.0
CHANCE = 0.001
"""Probability at most, over all pairs of classes, that counts of unrelated classes agree so often."""
EXCESS = 3.5
"""Variance of the squared difference of two values with Laplace noise, relative to the square of its expectation."""


def find_symmetry(observations: Sequence[Observations]) -> Symmetry:
    """Return which permutations of the classes do not change the likelihood of the observations.

    Classes whose counts are equal in all groups, or in all but a few, are interchangeable.

    Examples
    --------
    >>> from unbag import LabelProportions, OrdinalRank, OrdinalTriplet, PairwiseSimilarity
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
    # A swap and a rotation generate all permutations.
    if all(_is_symmetry(observations, order) for order in ([1, 0, *numbers[2:]], [*numbers[1:], 0])):
        return "any"
    # Counts do not order classes: the reversal of three then is an interchange of two.
    if not any(map(has_counts, observations)) and _is_symmetry(observations, numbers[::-1]):
        return "reversal"
    blocks = _find_interchangeable(observations)
    if len(blocks) == 1 and len(blocks[0]) == k:
        return "any"
    return blocks or "none"


def symmetry_of(aggregate: Aggregate, n_classes: int) -> Symmetry:
    """Return the symmetry of a kind of observation, from its observations of random labels.

    Examples
    --------
    >>> from unbag import FromFunction
    >>> symmetry_of(FromFunction(lambda labels: len(set(labels))), 3)
    'any'
    """
    size = aggregate.size or 3
    labels = torch.randint(n_classes, (GROUPS_TO_TRY * size,), generator=torch.Generator().manual_seed(0))
    groups = Groups.from_sizes([size] * GROUPS_TO_TRY)
    z = aggregate.observe(labels, groups, n_classes)
    return find_symmetry([Observations(aggregate, groups, z, n_classes)])


def count_differences(observations: Observations, first: int, second: int) -> tuple[int, int]:
    """Return the number of groups in which the counts of two classes differ, and in which either class occurs."""
    codes, absent = _encode_counts(observations)
    a, b = codes[:, first], codes[:, second]
    relevant = (a != absent) | (b != absent)
    return int((a != b)[relevant].sum()), int(relevant.sum())


def is_uncertain(observations: Observations) -> bool:
    """Return whether counts are published with noise or in intervals."""
    if observations.aggregate.outcome != "published_counts":
        return False
    z = observations.checked
    return bool((z[..., NOISE] > 0).any() | (z[..., LOW] < z[..., HIGH]).any())


def has_counts(observations: Observations) -> bool:
    """Return whether observations have a column per class that describes its count."""
    return observations.aggregate.outcome in ("class_counts", "published_counts")


def _find_interchangeable(observations: Sequence[Observations]) -> tuple[tuple[int, ...], ...]:
    """Return sets of at least two interchangeable classes."""
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 (slow to import)

    k = observations[0].n_classes
    others = [s for s in observations if not has_counts(s)]
    if others and k > MAX_CLASSES:
        return ()
    candidates = ~np.eye(k, dtype=bool)
    for s in observations:
        candidates &= find_interchangeable_counts(s) if has_counts(s) else _have_equal_posteriors(s)
    linked = np.zeros((k, k), dtype=bool)
    for first, second in np.argwhere(np.triu(candidates)).tolist():
        order = list(range(k))
        order[first], order[second] = second, first
        linked[first, second] = _is_symmetry(others, order)
    block_of_class = connected_components(linked, directed=False)[1]
    blocks = [tuple(np.flatnonzero(block_of_class == block).tolist()) for block in range(block_of_class.max() + 1)]
    return tuple(block for block in blocks if len(block) > 1)


def _encode_counts(observations: Observations) -> tuple[np.ndarray, int]:
    """Return a code for each distinct observation of a class, (groups, classes), and the code of an absent class.

    It is -1 for published counts if no unique statement means absence.
    """
    checked = observations.checked.cpu().numpy()
    if observations.aggregate.outcome == "class_counts":
        return checked.astype(np.int64), 0
    values, codes = np.unique(checked.reshape(-1, checked.shape[-1]), axis=0, return_inverse=True)
    absent = np.flatnonzero((values[:, :2] == 0).all(1) & ~values[:, 2:].any(1))
    return codes.reshape(checked.shape[:2]), int(absent[0]) if len(absent) == 1 else -1


def find_interchangeable_counts(observations: Observations) -> np.ndarray:
    """Return which pairs of classes have equal counts in (nearly) all groups, (classes, classes)."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    codes, absent = _encode_counts(observations)
    k = codes.shape[1]
    _, codes = np.unique(np.append(codes.ravel(), absent), return_inverse=True)
    codes, absent = codes[:-1].reshape(-1, k), int(codes[-1])
    n_codes = int(codes.max()) + 1
    shares = np.stack([np.bincount(column, minlength=n_codes) for column in codes.T]) / len(codes)  # (k, codes)
    present = codes != absent
    equal_counts = np.zeros((k, k), dtype=bool)
    for first in range(k):
        relevant = (present[:, [first]] | present).sum(0)
        differ = (codes[:, [first]] != codes).sum(0)
        # Probability of equal counts of unrelated classes, where either class occurs.
        both_absent = shares[first, absent] * shares[:, absent]
        equal = (shares @ shares[first] - both_absent) / np.maximum(1 - both_absent, 1e-12)
        limit = MAX_DIFFERING * relevant + SAMPLING_ERRORS * np.sqrt(MAX_DIFFERING * relevant)
        log_chance = binom.logcdf(differ, np.maximum(relevant, 1), np.clip(1 - equal, 0, 1)) + 2 * log(k)
        nearly = (differ <= limit) & (log_chance < log(CHANCE))
        equal_counts[first] = (relevant > 0) & ((differ == 0) | nearly)
    if is_uncertain(observations):
        equal_counts |= _may_have_equal_counts(observations)
    return equal_counts & ~np.eye(k, dtype=bool)


def _may_have_equal_counts(observations: Observations) -> np.ndarray:
    """Return which pairs of classes differ by no more than noise and intervals explain, (classes, classes).

    The sum over groups of the squared difference of two values with noise is compared with the sum of their variances,
    and intervals have to overlap. Both classes have to be closer than unrelated classes, whose values do not correlate
    over groups, and closer than classes of independent members, whose counts both grow with the group.
    """
    from scipy.stats import norm  # noqa: PLC0415 (slow to import)

    z, sizes = observations.checked.cpu().double(), observations.groups.sizes.cpu().double()
    n, k = z.shape[:2]
    upper = z[..., HIGH].clamp(max=sizes[:, None] + z[..., MISSING].sum(1, keepdim=True))
    bounded = torch.where((z[..., NOISE] > 0)[..., None], z, torch.stack([z[..., LOW], upper, *z.unbind(-1)[2:]], -1))
    values = estimate(bounded) - z[..., MISSING]
    noise = torch.zeros_like(values)
    for kind in KINDS.values():
        of_kind = z[..., NOISE] == kind.code
        noise = torch.where(of_kind, kind.variance(torch.where(of_kind, z[..., SCALE], 1.0)), noise)
    width = torch.where(z[..., NOISE] > 0, 0.0, upper - z[..., LOW])
    variance = noise + ((width + 1).square() - 1) / 12 + z[..., MISSING]
    is_noisy, whole = z[..., NOISE] > 0, values == values.round()
    shares = (values.sum(0) / sizes.sum()).clamp(0, 1)
    centred = values - values.mean(0)
    deviations = norm.isf(CHANCE / k**2)
    tolerance = MAX_DIFFERING + SAMPLING_ERRORS * (MAX_DIFFERING / n) ** 0.5  # share of the groups
    result = torch.zeros(k, k, dtype=torch.bool)
    for first in range(k):
        explained = variance[:, [first]] + variance
        squares = (values[:, [first]] - values).square()
        total = squares.sum(0)
        # If the values were unrelated, and if the members were independent.
        spread = centred.square().sum(0)
        unrelated = total + 2 * (centred[:, [first]] * centred).sum(0)
        error = 2 * (spread[first] * spread / max(n - 1, 1)).sqrt()
        each = sizes[:, None] * (shares[first] + shares - (shares[first] - shares).square())
        independent = (explained + each).sum(0)
        error_independent = (EXCESS * explained.square() + 2 * each.square() + 4 * each * explained).sum(0).sqrt()
        close = (total < unrelated - deviations * error) & (total < independent - SAMPLING_ERRORS * error_independent)
        # Differences of values with noise.
        with_noise = is_noisy[:, [first]] | is_noisy
        noise_only = torch.where(with_noise, explained, 0.0)
        rare = torch.where(with_noise & whole[:, [first]] & whole, explained, 0.0)  # of whole numbers
        limit = noise_only.sum(0) + SAMPLING_ERRORS * (EXCESS * noise_only.square() + rare).sum(0).sqrt()
        limit += tolerance * (torch.minimum(unrelated, independent) - explained.sum(0)).clamp(min=0)
        close &= torch.where(with_noise, squares, 0.0).sum(0) <= limit
        for second in close.nonzero().flatten().tolist():
            known = ~with_noise[:, second]
            if second != first and bool(known.any()):
                pair = z[known][:, [first, second], LOW], upper[known][:, [first, second]]
                close[second] = _overlap(*pair, tolerance, k)
        result[first] = close
    return (result & result.mT).numpy()


def _overlap(low: Tensor, high: Tensor, tolerance: float, n_classes: int) -> bool:
    """Return whether intervals of two classes, (groups, 2), overlap in more groups than those of unrelated classes."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    n = len(low)
    disjoint = int(((low[:, 0] > high[:, 1]) | (low[:, 1] > high[:, 0])).sum())
    # Among all pairs of two groups, the number of lower bounds above the upper bound of the other class.
    pairs = sum(
        int(torch.searchsorted(high[:, other].sort().values, low[:, own].contiguous()).sum())
        for own, other in ((0, 1), (1, 0))
    )
    unrelated = min(pairs / n**2, 1.0)
    unlikely = binom.logcdf(disjoint, n, unrelated) + 2 * log(n_classes) < log(CHANCE)
    return disjoint <= tolerance * unrelated * n and bool(unlikely)


def _have_equal_posteriors(observations: Observations) -> np.ndarray:
    """Return which pairs of classes have equal posteriors under uniform predictions, as interchangeable ones have."""
    k = observations.n_classes
    equal = np.ones((k, k), dtype=bool)
    for run, z in _sample_groups(observations):
        uniform = torch.zeros(run.total, k, dtype=torch.float64)
        posterior = observations.aggregate.checked_evidence(uniform, run, z).posterior.nan_to_num().numpy()
        for first in range(k):
            equal[first] &= (np.abs(posterior - posterior[:, [first]]) < 1e-6).all(0)
    return equal


def _is_symmetry(observations: Sequence[Observations], order: list[int]) -> bool:
    """Return whether a permutation of the classes does not change the likelihood of random predictions."""
    for s in observations:
        random = torch.Generator().manual_seed(0)
        for run, z in _sample_groups(s):
            logits = torch.randn(run.total, s.n_classes, generator=random, dtype=torch.float64)
            original, permuted = (s.aggregate.checked_evidence(x, run, z)[0] for x in (logits, logits[:, order]))
            if not torch.allclose(original, permuted, rtol=1e-6, atol=1e-6):
                return False
    return True


def _sample_groups(observations: Observations) -> Iterator[tuple[Segments, Tensor]]:
    """Yield a small group, which usually suffices to reject a symmetry, then others in parts."""
    n = len(observations.groups)
    sample = torch.arange(0, n, max(1, n // GROUPS_TO_TRY))
    sample = sample[observations.groups.sizes.cpu()[sample].argsort(stable=True)]
    for part in (sample[:1], sample[1:])[: len(sample)]:
        groups, checked = observations.groups.to("cpu").take(part), observations.checked.cpu()[part]
        for which, _, run in groups.segments.runs(MEMBERSHIPS_AT_ONCE):
            yield run, checked[which]
