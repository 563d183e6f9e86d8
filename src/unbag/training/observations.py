"""What a model is trained on: sets of observed groups."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate
from unbag.checks import as_tensor, check_n_classes
from unbag.groups import Groups


@dataclass(frozen=True, eq=False)
class Observations:
    """One set of observations: what kind, of which rows, what was seen, and how much the set counts.

    Several sets can share one model: counts of some groups, pairs of some rows, labels of a few (groups of one).

    Parameters
    ----------
    aggregate
        What was observed of each group.
    groups
        Which rows of the table form which group.
    z
        One observation per group.
    n_classes
        How many classes there are.
    weight
        How much the mean over the groups of this set counts beside other sets.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1], [2, 3], [1, 2], [0, 3]])
    >>> seen = Observations(PairwiseSimilarity(), pairs, [1, 0, 0, 1], n_classes=3)
    >>> len(seen.take(torch.tensor([0, 2])).groups)
    2
    """

    aggregate: Aggregate
    groups: Groups
    z: Any
    n_classes: int
    weight: float = 1.0
    checked: Tensor = field(init=False, repr=False)
    """The observations as :meth:`Aggregate.infer` takes them."""

    def __post_init__(self) -> None:
        check_n_classes(self.n_classes)
        if not math.isfinite(self.weight) or self.weight <= 0:
            raise ValueError(f"weight must be a positive number, got {self.weight!r}")
        self.aggregate.check_sizes(self.groups)
        object.__setattr__(self, "z", as_tensor(self.z, "z", self.groups.device))
        object.__setattr__(self, "checked", self.aggregate.check(self.z, self.groups, self.n_classes))

    def take(self, which: Tensor) -> Observations:
        """Return the chosen groups and what was seen of them."""
        return replace(self, groups=self.groups.take(which), z=self.z[which])

    def to(self, device: torch.device | str) -> Observations:
        """Return the same on another device."""
        return replace(self, groups=self.groups.to(device), z=self.z.to(device))

    def split(self, share: float, generator: torch.Generator) -> tuple[Observations, Observations]:
        """Set a share of the groups aside, at random; never a part of a group.

        A row that is in groups of both sides tells the one something about the other; split such sets by hand where
        that matters.
        """
        n = len(self.groups)
        held_out = round(share * n)
        if not 0 < held_out < n:
            raise ValueError(f"a share of {share} of {n} groups leaves nothing on one side; give more groups")
        order = torch.randperm(n, generator=generator).to(self.groups.device)
        return self.take(order[held_out:].sort().values), self.take(order[:held_out].sort().values)
