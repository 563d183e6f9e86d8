"""Sets of observed groups, from which models learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import check_n_classes
from unbag.aggregates.base import Aggregate, Evidence, check_rows, member_logits, raise_if_not_converged
from unbag.data.alignment import read_with_columns
from unbag.data.groups import Groups
from unbag.data.row_source import Rows
from unbag.data.weights import read_group_weights


@dataclass(frozen=True, eq=False)
class Observations:
    """A set of observations of one kind, with its groups and weights.

    Several sets can train one model: counts of some groups, pairs of some rows, labels of a few (groups of one).

    Parameters
    ----------
    aggregate, groups, z, n_classes
        Kind of the observations, rows of each group, observation of each group, and number of classes.
    weight
        Weight of the mean over the groups of a step, relative to other sets. A set with fewer groups than an epoch has
        steps takes part in only as many steps; a larger weight compensates for that.
    group_weights
        Weight of each group within this set, not negative; None is 1 for all. A group of weight 2 counts as two equal
        groups, and a group of weight 0 is ignored, even if its observation is impossible.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1], [2, 3], [1, 2], [0, 3]])
    >>> seen = Observations(PairwiseSimilarity(), pairs, [1, 0, 0, 1], n_classes=3)
    >>> len(seen.take(torch.tensor([0, 2])).groups)
    2
    """

    _derived_attributes = ("checked", "columns")

    aggregate: Aggregate
    groups: Groups
    z: Any
    n_classes: int
    weight: float = 1.0
    group_weights: Any = None
    checked: Tensor = field(init=False, repr=False)
    """The validated observations, for :meth:`Aggregate.infer`."""
    columns: list[Any] | None = field(init=False, repr=False)
    """Names of the columns of ``z``, in the order of the classes; None for arrays."""

    def __post_init__(self) -> None:
        check_n_classes(self.n_classes)
        if not isinstance(self.weight, Real) or not math.isfinite(self.weight) or self.weight <= 0:
            raise ValueError(f"weight must be a positive number, got {self.weight!r}")
        self.aggregate.check_sizes(self.groups)
        z, columns = read_with_columns(self.z, self.groups)
        object.__setattr__(self, "z", z)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "checked", self.aggregate.check(self.z, self.groups, self.n_classes))
        if self.group_weights is not None:
            object.__setattr__(self, "group_weights", self._read_weights(self.group_weights))

    def _read_weights(self, group_weights: Any) -> Tensor:
        weights = read_group_weights(group_weights, self.groups)
        if not bool(weights.any()):
            raise ValueError("group_weights must not all be zero: no group would be left to learn from")
        return weights

    @property
    def weights(self) -> Tensor:
        """The weight of each group, in float64."""
        if self.group_weights is None:
            return torch.ones(len(self.groups), dtype=torch.float64, device=self.groups.device)
        return self.group_weights

    def mean(self, values: Tensor) -> Tensor:
        """Return the weighted mean of one value per group."""
        weights = self.weights
        return (values.double() * weights).masked_fill(weights == 0, 0).sum() / weights.sum()

    def evidence(self, logits: Tensor) -> Evidence:
        """Return likelihood and posterior from the logits of all rows; see :meth:`unbag.Aggregate.evidence`."""
        members = member_logits(logits, self.groups)
        evidence = self.aggregate.checked_evidence(members, self.groups.segments, self.checked)
        raise_if_not_converged(evidence, self.groups, self.aggregate)
        return evidence

    def counting(self) -> Observations:
        """Return the observations without groups of weight zero."""
        positive = self.weights > 0
        return self if bool(positive.all()) else self.take(positive)

    def for_training(self) -> Observations:
        """Return the observations with the aggregate for training; see :meth:`unbag.Aggregate.for_training`."""
        copy = self.with_groups(self.groups)
        object.__setattr__(copy, "aggregate", self.aggregate.for_training())
        return copy

    def take(self, which: Tensor) -> Observations:
        """Return the chosen groups with their observations."""
        return self._unchecked(self.groups.take(which), lambda values: values[which])

    def to(self, device: torch.device | str) -> Observations:
        """Return the observations on another device."""
        return self._unchecked(self.groups.to(device), lambda values: values.to(device))

    def with_groups(self, groups: Groups) -> Observations:
        """Return the observations for groups that differ only in the numbers of their rows."""
        return self._unchecked(groups, lambda values: values)

    def with_weights(self, group_weights: Any) -> Observations:
        """Return the observations with new weights of groups, or None."""
        copy = self.with_groups(self.groups)
        copy.__dict__["group_weights"] = None if group_weights is None else self._read_weights(group_weights)
        return copy

    def _unchecked(self, groups: Groups, change: Callable[[Tensor], Tensor]) -> Observations:
        """Return a copy with changed groups, without validating it again."""
        weights = None if self.group_weights is None else change(self.group_weights)
        copy = object.__new__(Observations)
        changed = {"groups": groups, "z": change(self.z), "checked": change(self.checked), "group_weights": weights}
        copy.__dict__.update(vars(self) | changed)
        return copy

    def split(self, share: float, generator: torch.Generator) -> tuple[Observations, Observations]:
        """Hold out a share of the groups at random.

        Rows that are in several groups may be on both sides; split such sets yourself if that matters.
        """
        kept, held_out = self.split_indices(share, generator)
        return self.take(kept), self.take(held_out)

    def split_indices(self, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the sorted numbers of the groups on each side of a split, without groups of weight zero."""
        if not 0 < share < 1:
            raise ValueError(f"share must be a number between 0 and 1, got {share!r}")
        positive = self.weights.nonzero().flatten()
        n, n_held_out = len(positive), round(share * len(positive))
        if not 0 < n_held_out < n:
            raise ValueError(
                f"a share of {share} of {n} groups leaves one side empty; use more groups or another share"
            )
        order = positive[torch.randperm(n, generator=generator).to(self.groups.device)]
        return order[n_held_out:].sort().values, order[:n_held_out].sort().values


def check_sets(sets: Sequence[Sequence[Observations]], X: Rows, n_replicas: int) -> None:
    """Raise an error for sets that cannot train one model; each holds one entry, or one for each replica."""
    if not sets:
        raise ValueError("observations is empty: there is nothing to learn from")
    classes = sorted({s.n_classes for replicas in sets for s in replicas})
    if len(classes) > 1:
        raise ValueError(
            f"all sets of observations must have the same number of classes; got {', '.join(map(str, classes))}"
        )
    for replicas in sets:
        if len(replicas) not in (1, n_replicas):
            raise ValueError(
                f"each set must be shared by all {n_replicas} replicas or have an entry for each; got {len(replicas)}"
            )
        if len({(repr(s.aggregate), s.weight) for s in replicas}) > 1:
            raise ValueError("the entries of a set for different replicas must have the same aggregate and weight")
        for s in replicas:
            check_rows(X, s.groups)
