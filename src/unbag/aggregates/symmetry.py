"""Permutations of the classes that leave observations unchanged, so that they do not identify which class is which."""

from collections.abc import Callable, Iterator, Sequence
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
from unbag.published import HIGH, LOW, MISSING, NOISE, SCALE, estimate, exact

Symmetry = Literal["none", "reversal", "any"] | tuple[tuple[int, ...], ...]
"""Permutations with the same likelihood: none, reversal, any, or any within each of several sets of classes."""

GROUPS_TO_TRY = 200
"""Number of groups with random predictions on which symmetries are tested."""
MEMBERSHIPS_AT_ONCE, VALUES_AT_ONCE = 2**17, 2**22
MAX_CLASSES = 64
"""With more classes, only tables of counts are searched for interchangeable ones."""
MAX_COMPARED = 512
"""With more classes, only classes with similar observations are compared, and noise is not considered."""
ATTEMPTS, MAX_NEIGHBOURS = 32, 8
"""Attempts of the search for similar classes, and candidates for each class in each of them. Classes that agree in 80 %
of their groups are missed with a probability of 1e-8."""
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
    if not all(map(has_counts, observations)):
        # A swap and a rotation generate all permutations.
        if all(_is_symmetry(observations, order) for order in ([1, 0, *numbers[2:]], [*numbers[1:], 0])):
            return "any"
        # Counts do not order classes: the reversal of three then is an interchange of two.
        if not any(map(has_counts, observations)) and _is_symmetry(observations, numbers[::-1]):
            return "reversal"
    blocks = find_interchangeable(observations)
    if len(blocks) == 1 and len(blocks[0]) == k:
        return "any"
    return blocks or "none"


def symmetry_of(aggregate: Aggregate, n_classes: int) -> Symmetry:
    """Return the symmetry of a kind of observation, from its observations of random labels."""
    size = aggregate.size or 3
    labels = torch.randint(n_classes, (GROUPS_TO_TRY * size,), generator=torch.Generator().manual_seed(0))
    groups = Groups.from_sizes([size] * GROUPS_TO_TRY)
    z = aggregate.observe(labels, groups, n_classes)
    return find_symmetry([Observations(aggregate, groups, z, n_classes)])


def count_differences(observations: Observations, first: int, second: int) -> tuple[int, int]:
    """Return the number of groups in which the counts of two classes differ, and in which either class occurs."""
    codes, absent = _encode_counts([observations])
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


def find_interchangeable(observations: Sequence[Observations]) -> tuple[tuple[int, ...], ...]:
    """Return sets of at least two interchangeable classes."""
    from scipy.sparse import coo_array  # noqa: PLC0415 (slow to import)
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    k = observations[0].n_classes
    others = [s for s in observations if not has_counts(s)]
    if others and k > MAX_CLASSES:
        return ()
    if k <= MAX_COMPARED:
        pairs = np.stack(np.triu_indices(k, 1), 1)
    else:
        pairs = find_similar_columns(*_encode_counts(observations))
    for s in observations:
        compare = _compare_counts(s) if has_counts(s) else _compare_posteriors(s)
        parts = np.array_split(pairs, 1 + len(s.groups) * len(pairs) // VALUES_AT_ONCE)
        pairs = np.concatenate([part[compare(*part.T)] for part in parts])
    if others:
        orders = np.tile(np.arange(k), (len(pairs), 1))
        np.put_along_axis(orders, pairs, pairs[:, ::-1], 1)
        pairs = pairs[[_is_symmetry(others, order) for order in orders.tolist()]]
    linked = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(k, k))
    block_of_class = connected_components(linked, directed=False)[1]
    order = block_of_class.argsort(kind="stable")
    blocks = np.split(order, np.flatnonzero(np.diff(block_of_class[order])) + 1)
    return tuple(sorted(tuple(block.tolist()) for block in blocks if len(block) > 1))


def find_similar_columns(codes: np.ndarray, absent: int) -> np.ndarray:
    """Return pairs of columns, (pairs, 2), that agree in most rows where either is not ``absent``, in linear time.

    Two columns have an equal minimum of a random hash of their (row, code) pairs with the probability that a pair of
    either belongs to both. Columns with two equal minima in one of many attempts are candidates, and so are equal
    columns, each with the next one; of many columns with equal minima, each has only some of the next ones.
    """
    column, row = np.nonzero((codes != absent).T)
    values, start = np.unique(column, return_index=True)
    keys = (row * (int(codes.max()) + 2) + codes[row, column] + 1).astype(np.uint64)
    random = np.random.default_rng(0)
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for _ in range(ATTEMPTS if len(values) else 0):
        minima = []
        for factor in random.integers(2**63, size=2, dtype=np.uint64) * 2 + 1:
            hashed = keys * factor
            hashed = (hashed ^ (hashed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            minima.append(np.minimum.reduceat(hashed ^ (hashed >> np.uint64(32)), start))
        order = np.lexsort(minima)
        for distance in range(1, MAX_NEIGHBOURS + 1):
            first, second = order[:-distance], order[distance:]
            equal = np.all([minimum[first] == minimum[second] for minimum in minima], axis=0)
            if not equal.any():
                break
            pairs.append(values[np.sort(np.stack([first[equal], second[equal]], 1), 1)])
    return np.unique(np.concatenate(pairs), axis=0)


def _encode_counts(observations: Sequence[Observations]) -> tuple[np.ndarray, int]:
    """Return a code for each distinct observation of a class, (groups of all sets, classes), and that of absence.

    It is -1 if no unique statement of published counts means absence.
    """
    tables = [s.checked.cpu() for s in observations]
    if all(table.ndim == 2 for table in tables):
        return torch.cat(tables).numpy(), 0
    checked = torch.cat([exact(table) if table.ndim == 2 else table for table in tables]).numpy()
    values, codes = np.unique(checked.reshape(-1, checked.shape[-1]), axis=0, return_inverse=True)
    absent = np.flatnonzero((values[:, :2] == 0).all(1) & ~values[:, 2:].any(1))
    return codes.reshape(checked.shape[:2]), int(absent[0]) if len(absent) == 1 else -1


Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From the first and the second class of each pair to whether they may be interchangeable, all of shape (pairs,)."""


def _compare_counts(observations: Observations) -> Compare:
    """Compare pairs of classes by whether their counts are equal in (nearly) all groups.

    With noise or intervals, counts may be equal if they differ by no more than that explains.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 (slow to import)
    from scipy.stats import binom  # noqa: PLC0415

    codes, absent = _encode_counts([observations])
    (n, k), present = codes.shape, codes != absent
    group, column = np.nonzero(present)
    # The share of the groups with each code but that of absence, (classes, codes).
    shares = csr_array((np.full(len(group), 1 / n), (column, codes[group, column])), shape=(k, int(codes.max()) + 1))
    shares_absent = 1 - present.mean(0)
    codes, present = codes.T.copy(), present.T.copy()
    compare_uncertain = _compare_uncertain(observations) if is_uncertain(observations) and k <= MAX_COMPARED else None

    def compare(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        relevant = (present[first] | present[second]).sum(1)
        differ = (codes[first] != codes[second]).sum(1)
        # Probability of equal counts of unrelated classes, where either class occurs.
        both_absent = shares_absent[first] * shares_absent[second]
        equal = shares[first].multiply(shares[second]).sum(1) / np.maximum(1 - both_absent, 1e-12)
        limit = MAX_DIFFERING * relevant + SAMPLING_ERRORS * np.sqrt(MAX_DIFFERING * relevant)
        log_chance = binom.logcdf(differ, np.maximum(relevant, 1), np.clip(1 - equal, 0, 1)) + 2 * log(k)
        nearly = (differ <= limit) & (log_chance < log(CHANCE))
        result = (relevant > 0) & ((differ == 0) | nearly)
        return result if compare_uncertain is None else result | compare_uncertain(first, second)

    return compare


def _compare_uncertain(observations: Observations) -> Compare:
    """Compare pairs of classes by whether they differ by no more than noise and intervals explain.

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
    spread = centred.square().sum(0)
    deviations = norm.isf(CHANCE / k**2)
    tolerance = MAX_DIFFERING + SAMPLING_ERRORS * (MAX_DIFFERING / n) ** 0.5  # share of the groups

    def compare(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        explained = variance[:, first] + variance[:, second]
        squares = (values[:, first] - values[:, second]).square()
        total = squares.sum(0)
        # If the values were unrelated, and if the members were independent.
        unrelated = total + 2 * (centred[:, first] * centred[:, second]).sum(0)
        error = 2 * (spread[first] * spread[second] / max(n - 1, 1)).sqrt()
        each = sizes[:, None] * (shares[first] + shares[second] - (shares[first] - shares[second]).square())
        independent = (explained + each).sum(0)
        error_independent = (EXCESS * explained.square() + 2 * each.square() + 4 * each * explained).sum(0).sqrt()
        close = (total < unrelated - deviations * error) & (total < independent - SAMPLING_ERRORS * error_independent)
        # Differences of values with noise.
        with_noise = is_noisy[:, first] | is_noisy[:, second]
        noise_only = torch.where(with_noise, explained, 0.0)
        rare = torch.where(with_noise & whole[:, first] & whole[:, second], explained, 0.0)  # of whole numbers
        limit = noise_only.sum(0) + SAMPLING_ERRORS * (EXCESS * noise_only.square() + rare).sum(0).sqrt()
        limit += tolerance * (torch.minimum(unrelated, independent) - explained.sum(0)).clamp(min=0)
        close &= torch.where(with_noise, squares, 0.0).sum(0) <= limit
        for place in close.nonzero().flatten().tolist():
            known, pair = ~with_noise[:, place], [first[place], second[place]]
            if bool(known.any()):
                close[place] = _overlap(z[known][:, pair, LOW], upper[known][:, pair], tolerance, k)
        return close.numpy()

    return compare


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


def _compare_posteriors(observations: Observations) -> Compare:
    """Compare pairs of classes by whether their posteriors are equal under uniform predictions."""
    posteriors = []
    for run, z in _sample_groups(observations):
        uniform = torch.zeros(run.total, observations.n_classes, dtype=torch.float64)
        posteriors.append(observations.aggregate.checked_evidence(uniform, run, z).posterior.nan_to_num().numpy())
    posterior = np.concatenate(posteriors)
    return lambda first, second: (np.abs(posterior[:, first] - posterior[:, second]) < 1e-6).all(0)


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
