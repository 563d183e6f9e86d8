"""What a model is trained on: sets of observed groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import check_n_classes
from unbag.aggregates.base import Aggregate, Evidence, member_logits
from unbag.data.alignment import read_with_columns
from unbag.data.groups import Groups
from unbag.data.row_source import Rows
from unbag.data.weights import read_group_weights


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
        How much the mean over the groups of a step counts beside those of other sets. A set with fewer groups than an
        epoch has steps is part of so many steps only; give it a larger weight where it should count as much.
    group_weights
        How much each group counts beside the others of this set, not negative; None: all the same. A group of weight 2
        is as good as two that are alike, and one of weight 0 is left out, even where its observation is impossible.

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
    """The observations as :meth:`Aggregate.infer` takes them."""
    columns: list[Any] | None = field(init=False, repr=False)
    """The names of the columns of ``z``; None where they have none. The order is that of the classes."""

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
        """How much each group counts, in float64; 1 where no weights were given."""
        if self.group_weights is None:
            return torch.ones(len(self.groups), dtype=torch.float64, device=self.groups.device)
        return self.group_weights

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per group, by their weights; a group of weight zero does not count."""
        weights = self.weights
        return (values.double() * weights).masked_fill(weights == 0, 0).sum() / weights.sum()

    def evidence(self, logits: Tensor) -> Evidence:
        """Return likelihood and posterior from the logits of all rows; see :meth:`unbag.Aggregate.evidence`."""
        return self.aggregate.named_evidence(member_logits(logits, self.groups), self.groups, self.checked)

    def counting(self) -> Observations:
        """Return the groups that count, which are all but those of weight zero."""
        counts = self.weights > 0
        return self if bool(counts.all()) else self.take(counts)

    def for_training(self) -> Observations:
        """Return the same to learn by; see :meth:`unbag.Aggregate.for_training`."""
        return self._seen_by(self.aggregate.for_training())

    def _seen_by(self, aggregate: Aggregate) -> Observations:
        other = self.with_groups(self.groups)
        object.__setattr__(other, "aggregate", aggregate)
        return other

    def take(self, which: Tensor) -> Observations:
        """Return the chosen groups and what was seen of them."""
        return self._unchecked(self.groups.take(which), lambda of_groups: of_groups[which])

    def to(self, device: torch.device | str) -> Observations:
        """Return the same on another device."""
        return self._unchecked(self.groups.to(device), lambda of_groups: of_groups.to(device))

    def with_groups(self, groups: Groups) -> Observations:
        """Return the same of groups that are alike but for the numbers of their rows."""
        return self._unchecked(groups, lambda of_groups: of_groups)

    def with_weights(self, group_weights: Any) -> Observations:
        """Return the same with other weights of groups, or None."""
        other = self.with_groups(self.groups)
        weights = None if group_weights is None else self._read_weights(group_weights)
        other.__dict__["group_weights"] = weights
        return other

    def _unchecked(self, groups: Groups, change: Callable[[Tensor], Tensor]) -> Observations:
        """Skip the checks where the pieces come from checked observations."""
        weights = None if self.group_weights is None else change(self.group_weights)
        other = object.__new__(Observations)
        changed = {"groups": groups, "z": change(self.z), "checked": change(self.checked), "group_weights": weights}
        other.__dict__.update(vars(self) | changed)
        return other

    def split(self, share: float, generator: torch.Generator) -> tuple[Observations, Observations]:
        """Set a share of the groups aside, at random; never a part of a group.

        A row that is in groups of both sides tells the one something about the other; split such sets by hand where
        that matters.
        """
        kept, held_out = self.split_indices(share, generator)
        return self.take(kept), self.take(held_out)

    def split_indices(self, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the numbers of the groups on either side of such a split, in their order, of those that count."""
        if not 0 < share < 1:
            raise ValueError(f"share must be a number between 0 and 1, got {share!r}")
        counting = self.weights.nonzero().flatten()
        n = len(counting)
        held_out = round(share * n)
        if not 0 < held_out < n:
            raise ValueError(f"a share of {share} of {n} groups leaves nothing on one side; give more groups")
        order = counting[torch.randperm(n, generator=generator).to(self.groups.device)]
        return order[held_out:].sort().values, order[:held_out].sort().values


def check_sets(sets: Sequence[Sequence[Observations]], X: Rows, n_replicas: int) -> None:
    """Refuse sets that cannot train one model together; each is one for all replicas, or one for each."""
    if not sets:
        raise ValueError("observations is empty: there is nothing to learn from")
    classes = sorted({one.n_classes for given in sets for one in given})
    if len(classes) > 1:
        raise ValueError(
            f"all sets of observations must be of the same number of classes; got {', '.join(map(str, classes))}"
        )
    for given in sets:
        if len(given) not in (1, n_replicas):
            raise ValueError(
                f"a set of observations must be one for all {n_replicas} replicas, or one for each; got {len(given)}"
            )
        if len({(repr(one.aggregate), one.weight) for one in given}) > 1:
            raise ValueError("a set of observations with one for each replica must have the same aggregate and weight")
        for one in given:
            check_rows(one.groups, X)


def check_rows(groups: Groups, X: Any) -> None:
    """Refuse groups of other rows than those of X, or on another device than these."""
    if isinstance(X, Rows) and groups.device != X.device:
        raise ValueError(f"X is on {X.device}, but the groups are on {groups.device}; move one of them")
    if groups.n_rows is not None and groups.n_rows != len(X):
        raise ValueError(f"the groups were made for {groups.n_rows} rows, but X has {len(X)}")
    if groups.last_row >= len(X):
        raise ValueError(
            f"row number {groups.last_row} is out of range for X of {len(X)} rows; "
            f"see {groups.format_groups_holding(groups.members >= len(X))}"
        )
