"""Classes that observations leave without names: finding out which, and naming them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unbag.aggregates import Aggregate
from unbag.groups import Groups
from unbag.segments import Segments
from unbag.training import Observations

Symmetry = Literal["none", "reversal", "any"]
"""Which renamings of the classes fit the observations as well."""

# A symmetry that holds for random predictions and so many groups, taken from everywhere, is no accident.
GROUPS_TO_TRY = 200
MEMBERSHIPS_AT_ONCE = 2**17


def find_symmetry(observations: Sequence[Observations]) -> Symmetry:
    """Return which renamings of the classes leave the likelihood of all observations as it is.

    Examples
    --------
    >>> from unbag import Groups, OrdinalRank, OrdinalTriplet, PairwiseSimilarity
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
    z = aggregate.observe(labels, groups, n_classes)
    return find_symmetry([Observations(aggregate, groups, z, n_classes)])


def best_order(together: np.ndarray, symmetry: Symmetry) -> np.ndarray:
    """Return which output to read each class from, so that most of what is together stays together.

    Parameters
    ----------
    together
        How much each class and each output have in common, ``(classes, outputs)``.
    symmetry
        Which orders are allowed.

    Examples
    --------
    >>> best_order(np.array([[0, 5, 1], [4, 0, 0], [0, 3, 2]]), "any").tolist()
    [1, 0, 2]
    """
    own = np.arange(len(together))
    if symmetry == "any":
        return linear_sum_assignment(-together)[1]
    if symmetry == "reversal" and together[own, own[::-1]].sum() > together[own, own].sum():
        return own[::-1].copy()
    return own


def choose_names(labels: np.ndarray, classes: np.ndarray, symmetry: Symmetry, *, fixed: bool) -> np.ndarray:
    """Return the names of the classes from labels of some rows, of which every class needs one.

    Parameters
    ----------
    labels
        Of the rows.
    classes
        What the classes are called so far.
    symmetry
        Which classes could be confused.
    fixed
        Whether these names, and their order, are those of the caller; otherwise the labels bring their own.
    """
    distinct = np.unique(labels)
    known = set(distinct.tolist()) <= set(classes.tolist())
    if not fixed and len(distinct) == len(classes):
        if symmetry == "reversal" and not known and distinct.dtype.kind not in "iuf":
            raise ValueError(f"classes are ordered, but the order of {distinct.tolist()} is not known; give classes=")
        return distinct
    if known and (missing := sorted(set(classes.tolist()) - set(distinct.tolist()), key=classes.tolist().index)):
        raise ValueError(f"every class needs a labelled row to be named by; there is none for {missing}")
    if not fixed:
        raise ValueError(
            f"every class needs a labelled row to be named by; there are {len(classes)} classes, but y has "
            f"{len(distinct)}: {distinct[:10].tolist()}"
        )
    return classes


def _fits_as_well(observations: Sequence[Observations], order: list[int]) -> bool:
    return all(_set_fits_as_well(one, order) for one in observations)


def _set_fits_as_well(one: Observations, order: list[int]) -> bool:
    n = len(one.groups)
    some = one.to("cpu").take(torch.arange(0, n, max(1, n // GROUPS_TO_TRY)))
    random = torch.Generator().manual_seed(0)
    for which, _, run in some.groups.segments.runs(MEMBERSHIPS_AT_ONCE):
        z = some.checked[which]
        logits = torch.randn(run.total, one.n_classes, generator=random, dtype=torch.float64)
        as_named, renamed = (_log_likelihood(one.aggregate, own, run, z) for own in (logits, logits[:, order]))
        if not torch.allclose(as_named, renamed, rtol=1e-6, atol=1e-6):
            return False
    return True


def _log_likelihood(aggregate: Aggregate, logits_of_members: Tensor, segments: Segments, z: Tensor) -> Tensor:
    with torch.no_grad():
        return aggregate.checked_evidence(logits_of_members, segments, z).log_likelihood
