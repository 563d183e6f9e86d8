"""Which classes observations leave without names: found by renaming them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate
from unbag.data.groups import Groups

Symmetry = Literal["none", "reversal", "any"]
"""Which renamings of the classes fit the observations as well."""

# A symmetry that holds for random predictions and so many groups, taken from everywhere, is no accident.
GROUPS_TO_TRY = 200
MEMBERSHIPS_AT_ONCE = 2**17


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
    """Return which renamings of the classes leave the likelihood of all observations as it is.

    Examples
    --------
    >>> from unbag import OrdinalRank, OrdinalTriplet, PairwiseSimilarity
    >>> from unbag.training import Observations
    >>> pairs = Groups.from_tuples([[0, 1], [1, 2]])
    >>> find_symmetry([Observations(PairwiseSimilarity(), pairs, [1, 0], 3)])
    'any'
    >>> find_symmetry([Observations(OrdinalRank(), pairs, [1, 0], 3)])
    'none'
    >>> find_symmetry([Observations(OrdinalTriplet(), Groups.from_tuples([[0, 1, 2]]), [1], 3)])
    'reversal'
    """
    k = observations[0].n_classes
    numbers = list(range(k))
    # A swap and a rotation together make all permutations.
    if all(_fits_as_well(observations, order) for order in ([1, 0, *numbers[2:]], [*numbers[1:], 0])):
        return "any"
    return "reversal" if _fits_as_well(observations, numbers[::-1]) else "none"


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


def _fits_as_well(observations: Sequence[Checked], order: list[int]) -> bool:
    return all(_set_fits_as_well(one, order) for one in observations)


def _set_fits_as_well(one: Checked, order: list[int]) -> bool:
    n = len(one.groups)
    some = torch.arange(0, n, max(1, n // GROUPS_TO_TRY))
    some = some[one.groups.sizes.cpu()[some].argsort(stable=True)]
    random = torch.Generator().manual_seed(0)
    for part in (some[:1], some[1:])[: len(some)]:  # the smallest mostly tells at once
        groups, checked = one.groups.to("cpu").take(part), one.checked.cpu()[part]
        for which, _, run in groups.segments.runs(MEMBERSHIPS_AT_ONCE):
            z = checked[which]
            logits = torch.randn(run.total, one.n_classes, generator=random, dtype=torch.float64)
            as_named, renamed = (_log_likelihood(one.aggregate, own, run, z) for own in (logits, logits[:, order]))
            if not torch.allclose(as_named, renamed, rtol=1e-6, atol=1e-6):
                return False
    return True


def _log_likelihood(aggregate: Aggregate, logits_of_members: Tensor, segments: Segments, z: Tensor) -> Tensor:
    with torch.no_grad():
        return aggregate.checked_evidence(logits_of_members, segments, z).log_likelihood
