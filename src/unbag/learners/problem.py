"""Training data in the form that every learner receives: rows, and observations of groups of these rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates.symmetry import Symmetry
from unbag.data.groups import Groups
from unbag.data.labels import Categorical
from unbag.data.row_source import Rows, select_rows
from unbag.learners.constant import find_cases, fit_constant
from unbag.learners.folds import Folds, assign_folds
from unbag.training import Observations

MAX_SCORED_VALUES = 2**21
"""Outputs of several models whose log-likelihood is computed at once."""
PRIOR_OF_CONSTANT = 1e-3
"""Penalty on squared logits of the constant model, which keeps those of classes that do not occur finite."""
SMALLEST_SHARE = 1e-4
"""Share of a class, relative to the largest, at which the search for the constant model starts at least."""


class Evidence(NamedTuple):
    """Result of an E-step."""

    log_likelihood: Tensor  # (groups of all sets,)
    expected_labels: Tensor  # (rows, classes); each row sums to its weight


class Split(NamedTuple):
    """Training and held-out part of one fold; nothing is held out where ``held_out`` is None."""

    train: Problem
    held_out: Problem | None
    members: Tensor
    """Memberships of the whole problem whose predictions come from this fold, as positions in its ``members``."""
    rows: Tensor
    """For each of them, its row in ``held_out``."""


def _unlimited() -> float:
    return math.inf


@dataclass(frozen=True, eq=False)
class Watch:
    """What a learner consults that trains to its end within a single step of its path."""

    held_out: Problem | None = None  # by which it may choose when to stop; None where nothing is held out
    seconds_left: Callable[[], float] = _unlimited  # 0 once the fit was interrupted
    history: list[dict[str, Any]] = field(default_factory=list)  # the learner appends an entry for each epoch


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, sets of observations of their groups, and the distribution of labels."""

    X: Rows  # scaled, (rows, ...); NaN marks a missing value of a table
    sets: tuple[Observations, ...]  # ``set.groups`` holds row numbers of ``X``
    labels: Categorical  # the distribution that models predict for each row
    rows: Tensor  # row numbers in the problem from which this one was selected
    subjects: Tensor | None = None  # (rows,), numbers from 0; rows of a subject stay in one fold
    symmetry: Symmetry = "none"  # permutations of the classes that leave the observations unchanged
    watch: Watch = field(default_factory=Watch)

    @classmethod
    def create(
        cls,
        X: Rows,
        sets: Sequence[Observations],
        labels: Categorical,
        subjects: Tensor | None = None,
        symmetry: Symmetry = "none",
    ) -> Problem:
        """Make a problem of all rows that are in a group, and of all groups whose weight is not zero."""
        whole = cls(X, tuple(s.counting() for s in sets), labels, torch.arange(len(X)), subjects, symmetry)
        return whole.select([torch.arange(len(s.groups)) for s in whole.sets])

    @property
    def n_groups(self) -> int:
        """Return the number of groups of all sets."""
        return sum(len(s.groups) for s in self.sets)

    @cached_property
    def members(self) -> Tensor:
        """Return the row of each membership, the groups of all sets one after the other."""
        return torch.cat([s.groups.members for s in self.sets])

    @property
    def groups_share_rows(self) -> bool:
        """Return whether a row is in several groups that can be held out."""
        judged = [s.groups.members for s in self.sets if not s.aggregate.describes_all_rows]
        return sum(map(len, judged)) > len(torch.cat(judged).unique())

    def with_watch(self, watch: Watch) -> Problem:
        """Return the problem with another watch, and with all that was computed of it."""
        other = copy(self)
        object.__setattr__(other, "watch", watch)
        return other

    def per_set(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split values of memberships into those of each set."""
        return values.split([len(s.groups.members) for s in self.sets])

    @cached_property
    def mean_group_size(self) -> float:
        """Return the mean number of members of a group."""
        return len(self.members) / self.n_groups

    @cached_property
    def weights_of_sets(self) -> list[Tensor]:
        """Return the weight of each group, one tensor for each set, float64."""
        return [s.weights * s.weight for s in self.sets]

    @cached_property
    def group_weights(self) -> Tensor:
        """Return the weight of each group of all sets, shape ``(groups,)``, float64."""
        return torch.cat(self.weights_of_sets)

    def e_step(self, outputs: Tensor) -> Evidence:
        """Compute the log-likelihood of every group and the expected labels of every row, without gradients."""
        expected = torch.zeros(outputs.shape, dtype=torch.float64)
        log_likelihoods = []
        with torch.no_grad():
            for s, weights in zip(self.sets, self.weights_of_sets, strict=True):
                members, segments = s.groups.members, s.groups.segments
                evidence = s.aggregate.checked_evidence(outputs[members], segments, s.checked)
                posterior = evidence.posterior.double() * segments.expand(weights)[:, None]
                expected.index_add_(0, members, posterior)
                log_likelihoods.append(evidence.log_likelihood.double())
        if not bool(expected.isfinite().all()):
            raise ArithmeticError("the model rules out the observation of a group, which then has no posterior")
        return Evidence(torch.cat(log_likelihoods), expected.float())

    def log_likelihood(self, outputs: Tensor) -> Tensor:
        """Compute the log-likelihood of every group by each of several models.

        ``outputs`` are ``(models, rows, outputs)``; the result, ``(models, groups of all sets)``, is differentiable.
        """
        n, values = len(outputs), []
        for s in self.sets:  # all models at once, because most groups are small
            members = outputs[:, s.groups.members].flatten(0, 1)
            segments = s.groups.segments if n == 1 else Segments.from_sizes(s.groups.sizes.repeat(n))
            checked = s.checked.repeat(n, *[1] * (s.checked.ndim - 1))
            values.append(s.aggregate.checked_evidence(members, segments, checked).log_likelihood.view(n, -1))
        return torch.cat(values, 1)

    def smooth_log_likelihood(self, outputs: Tensor) -> Tensor:
        """Compute the total log-likelihood by each kind's cheapest smooth approximation, differentiable, a scalar.

        Full-batch optimisers call this hundreds of times.
        """
        total = torch.zeros((), dtype=torch.float64)
        for s, weights in zip(self.sets, self.weights_of_sets, strict=True):
            members = outputs.index_select(0, s.groups.members)  # its gradient is faster than that of an index
            values = s.aggregate.smooth_log_likelihood(members, s.groups.segments, s.checked).double()
            total = total + weights @ values
        return total

    def score(self, outputs: Tensor, sharpness: Sequence[float] = (1.0,)) -> float:
        """Compute the weighted mean log-likelihood per group, with the best of some inverse temperatures."""
        at_once = max(1, MAX_SCORED_VALUES // outputs.numel())
        with torch.no_grad():
            tempered = (self.labels.temper(outputs.double(), part) for part in torch.tensor(sharpness).split(at_once))
            values = torch.cat([self.log_likelihood(outputs) @ self.group_weights for outputs in tempered])
        return float(values.max() / self.group_weights.sum())

    def targets(self, outputs: Tensor, overrelaxation: float = 0.0) -> Tensor:
        """Compute the expected labels of every row, extrapolated beyond the posterior."""
        return self.labels.extrapolate(self.e_step(outputs).expected_labels, outputs, overrelaxation)

    @cached_property
    def constant_outputs(self) -> Tensor:
        """Return the outputs of the best model that predicts the same for every row, shape ``(outputs,)``."""
        uniform = self.labels.initial_outputs(len(self.rows)).double()
        shares = self.e_step(uniform).expected_labels.double().mean(0)  # of counts, the best constant already
        start = shares.clamp_min(shares.max() * SMALLEST_SHARE).log()
        cases = [find_cases(s) for s in self.sets]
        return fit_constant(cases, [(start - start.mean()).numpy()], PRIOR_OF_CONSTANT).log_softmax(0).float()

    def assign_folds(self, n_folds: int, seed: int) -> Folds:
        """Assign groups and rows to folds; see :func:`unbag.learners.folds.assign_folds`."""
        return assign_folds(self.sets, len(self.rows), self.subjects, n_folds, seed)

    def split(self, n_folds: int, seed: int) -> list[Split]:
        """Split groups into folds; those in which nothing is held out, or everything, are left out."""
        folds = self.assign_folds(n_folds, seed)
        return [
            self._hold_out(groups, folds.members == number)
            for number, groups in enumerate(folds.groups)
            if any(map(torch.any, groups)) and not all(map(torch.all, groups))
        ]

    def _hold_out(self, groups: Sequence[Tensor], members: Tensor) -> Split:
        """Return the split without some groups of each set, whose model predicts some memberships."""
        train = self.select([(~flags).nonzero().flatten() for flags in groups])
        held_out = self.select([flags.nonzero().flatten() for flags in groups])
        positions = members.nonzero().flatten()
        rows = torch.searchsorted(held_out.rows, self.rows[self.members[positions]])
        return Split(train, held_out, positions, rows)

    def select(self, groups: Sequence[Tensor]) -> Problem:
        """Select groups of each set, and only their rows."""
        chosen = [s.take(which) for s, which in zip(self.sets, groups, strict=True) if len(which)]
        rows = torch.cat([s.groups.members for s in chosen]).unique()
        if len(rows) == len(self.rows):
            return replace(self, sets=tuple(chosen))
        number = torch.full((len(self.rows),), -1).index_copy_(0, rows, torch.arange(len(rows)))
        local = [
            s.with_groups(Groups(number[s.groups.members], s.groups.offsets, len(rows), ids=s.groups.ids))
            for s in chosen
        ]
        subjects = None if self.subjects is None else self.subjects[rows].unique(return_inverse=True)[1]
        return replace(self, X=select_rows(self.X, rows), sets=tuple(local), rows=self.rows[rows], subjects=subjects)

    def unroll(self, members: Tensor) -> Problem | None:
        """Return the groups all of whose memberships are flagged, with a row without columns for each membership.

        It evaluates predictions that differ between the groups of a row. ``rows`` are the positions of the memberships.
        """
        sets, groups, first = [], [], 0
        for s in self.sets:
            n = len(s.groups.members)
            numbers = torch.arange(first, first + n)
            sets.append(s.with_groups(Groups(numbers, s.groups.offsets, len(self.members), ids=s.groups.ids)))
            groups.append((s.groups.segments.sum((~members[numbers]).long()) == 0).nonzero().flatten())
            first += n
        if not any(map(len, groups)):
            return None
        return Problem(torch.empty(first, 0), tuple(sets), self.labels, torch.arange(first)).select(groups)
