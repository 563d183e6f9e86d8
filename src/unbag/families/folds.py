"""Folds of observed groups: every group is left out of training once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.training import Observations

# Models that learn from all groups where these are few, which differ by chance alone, and how much they count
# together: those of folds are there to be judged, and lack what they have left out.
N_REFITS, SHARE_OF_REFITS = 8, 0.8


@dataclass(frozen=True, eq=False)
class Fold:
    """The groups of each set that one model learns from, and those that judge it."""

    used: list[Observations]
    held_out: list[Observations]
    """Of the sets that have any for this fold; none where all groups are learned from."""

    def to(self, device: str) -> Fold:
        """Return the same on another device."""
        return Fold([one.to(device) for one in self.used], [one.to(device) for one in self.held_out])


def number_folds(one: Observations, n_folds: int, seed: int) -> Tensor:
    """Return by which fold each group is left out, at random, as evenly as possible, ``(groups,)``.

    A single group is never left out, which the number -1 says.
    """
    n = len(one.groups)
    if n == 1:
        return torch.full((1,), -1)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)) % min(n_folds, n)


def make_folds(sets: Sequence[Observations], numbers: Sequence[Tensor]) -> list[Fold]:
    """Return the groups that are used and left out in each fold.

    Parameters
    ----------
    sets
        What was observed.
    numbers
        For each set, by which fold each group is left out, from :func:`number_folds`.
    """
    folds = []
    for fold in range(1 + int(max(own.max() for own in numbers))):
        left_out = [(own == fold).to(one.groups.device) for one, own in zip(sets, numbers, strict=True)]
        used = [one.take(~own) for one, own in zip(sets, left_out, strict=True)]
        held_out = [one.take(own) for one, own in zip(sets, left_out, strict=True) if own.any()]
        folds.append(Fold(used, held_out))
    return folds


def tell_of_each_other(sets: Sequence[Observations]) -> bool:
    """Whether what is learned from groups can be judged by others.

    The counts of as many groups as there are classes, or fewer, vary in directions of their own: what one that is left
    out has more of than others is not known from these, and a constant prediction explains it best.
    """
    counted = all(one.aggregate.outcome == "class_counts" for one in sets)
    return not counted or max(len(one.groups) for one in sets) > sets[0].n_classes


def fold_of_members(one: Observations, numbers: Tensor) -> Tensor:
    """Return by which fold each membership is left out, ``(memberships,)``."""
    return one.groups.segments.expand(numbers)
