"""Training data in the form that every learner receives: rows, and observations of groups of these rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from unbag.data.groups import Groups
from unbag.data.labels import Categorical
from unbag.data.row_source import Rows, gather_rows
from unbag.training import Observations

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


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, sets of observations of their groups, and the distribution of labels.

    Parameters
    ----------
    X
        Scaled rows, shape ``(rows, ...)``. NaN marks a missing value of a table.
    sets
        Observations; ``set.groups`` holds row numbers of ``X``.
    labels
        The distribution that models predict for each row.
    rows
        Row numbers in the problem from which this one was selected.
    subjects
        Number of the subject that each row belongs to, shape ``(rows,)``; rows of a subject stay in one fold.
    """

    X: Rows
    sets: tuple[Observations, ...]
    labels: Categorical
    rows: Tensor
    subjects: Tensor | None = None

    @classmethod
    def create(
        cls, X: Rows, sets: Sequence[Observations], labels: Categorical, subjects: Tensor | None = None
    ) -> Problem:
        """Make a problem of all rows that are in a group, and of all groups whose weight is not zero."""
        whole = cls(X, tuple(s.counting() for s in sets), labels, torch.arange(len(X)), subjects)
        return whole.select([torch.arange(len(s.groups)) for s in whole.sets])

    @property
    def n_groups(self) -> int:
        """Return the number of groups of all sets."""
        return sum(len(s.groups) for s in self.sets)

    @cached_property
    def mean_group_size(self) -> float:
        """Return the mean number of members of a group."""
        return sum(len(s.groups.members) for s in self.sets) / self.n_groups

    @cached_property
    def group_weights(self) -> Tensor:
        """Return the weight of each group of all sets, shape ``(groups,)``, float64."""
        return torch.cat([s.weights * s.weight for s in self.sets])

    @cached_property
    def row_weights(self) -> Tensor:
        """Return the summed weight of the groups of each row, shape ``(rows,)``."""
        weights = torch.zeros(len(self.rows), dtype=torch.float64)
        for s in self.sets:
            weights.index_add_(0, s.groups.members, s.groups.segments.expand(s.weights * s.weight))
        return weights

    def e_step(self, outputs: Tensor) -> Evidence:
        """Compute the log-likelihood of every group and the expected labels of every row, without gradients."""
        expected = torch.zeros(outputs.shape, dtype=torch.float64)
        log_likelihoods = []
        with torch.no_grad():
            for s in self.sets:
                evidence = s.aggregate.checked_evidence(outputs[s.groups.members], s.groups.segments, s.checked)
                weights = s.groups.segments.expand(s.weights * s.weight)
                expected.index_add_(0, s.groups.members, evidence.posterior.double() * weights[:, None])
                log_likelihoods.append(evidence.log_likelihood.double())
        if not bool(expected.isfinite().all()):
            raise ArithmeticError("the model rules out the observation of a group, which then has no posterior")
        return Evidence(torch.cat(log_likelihoods), expected.float())

    def log_likelihood(self, outputs: Tensor) -> Tensor:
        """Compute the log-likelihood of every group, differentiable, shape ``(groups of all sets,)``."""
        return torch.cat(
            [
                s.aggregate.checked_evidence(outputs[s.groups.members], s.groups.segments, s.checked).log_likelihood
                for s in self.sets
            ]
        )

    def smooth_log_likelihood(self, outputs: Tensor) -> Tensor:
        """Compute the total log-likelihood by each kind's cheapest smooth approximation, differentiable, a scalar.

        Full-batch optimisers call this hundreds of times.
        """
        total = outputs.new_zeros(())
        for s in self.sets:
            values = s.aggregate.smooth_log_likelihood(outputs[s.groups.members], s.groups.segments, s.checked)
            total = total + (s.weights * s.weight).to(values) @ values
        return total

    def score(self, outputs: Tensor) -> float:
        """Compute the weighted mean log-likelihood per group."""
        with torch.no_grad():
            values = self.log_likelihood(outputs.double())
        return float(values @ self.group_weights / self.group_weights.sum())

    def targets(self, outputs: Tensor, overrelaxation: float = 0.0) -> Tensor:
        """Compute the expected labels of every row, extrapolated beyond the posterior."""
        return self.labels.extrapolate(self.e_step(outputs).expected_labels, outputs, overrelaxation)

    @cached_property
    def constant_outputs(self) -> Tensor:
        """Return the outputs of the best model that predicts the same for every row, shape ``(outputs,)``."""

        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            outputs = torch.from_numpy(values).requires_grad_()
            log_likelihood = self.log_likelihood(outputs.expand(len(self.rows), -1))
            value = -(log_likelihood @ self.group_weights) / self.group_weights.sum()
            value = value + PRIOR_OF_CONSTANT * outputs.square().mean()
            value.backward()
            return value.item(), outputs.grad.numpy()  # type: ignore[union-attr]

        uniform = self.labels.initial_outputs(len(self.rows)).double()
        shares = self.e_step(uniform).expected_labels.double().mean(0)  # of counts, the best constant already
        start = shares.clamp_min(shares.max() * SMALLEST_SHARE).log()
        found = minimize(loss, (start - start.mean()).numpy(), jac=True, method="L-BFGS-B")
        return torch.from_numpy(found.x).log_softmax(0).float()

    def split(self, n_folds: int, seed: int) -> list[Split]:
        """Split rows into folds; a fold trains on the groups without held-out rows.

        Groups that share rows, and groups that share a subject, stay together as long as that leaves several parts;
        otherwise single rows are assigned to folds, and each fold uses the groups that lie within one of its parts.
        """
        fold = self.assign_folds(n_folds, seed)
        return [Split(self._within(fold != number), self._within(fold == number)) for number in range(n_folds)]

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
        subjects = None if self.subjects is None else self.subjects[rows]
        return Problem(gather_rows(self.X, rows), tuple(local), self.labels, self.rows[rows], subjects)

    def _within(self, keep: Tensor) -> Problem:
        inside = [s.groups.segments.sum((~keep[s.groups.members]).long()) == 0 for s in self.sets]
        if not any(bool(flags.any()) for flags in inside):
            raise ValueError("a fold has no complete group; use fewer folds")
        return self.select([flags.nonzero().flatten() for flags in inside])

    def assign_folds(self, n_folds: int, seed: int) -> Tensor:
        """Return the fold of each row."""
        generator = torch.Generator().manual_seed(seed)
        part = self._connected_parts()
        n_parts = int(part.max()) + 1
        if int(torch.bincount(part).max()) > len(part) / 2 or n_parts < n_folds:  # too few parts: by single rows
            part, n_parts = torch.arange(len(self.rows)), len(self.rows)
        return (torch.randperm(n_parts, generator=generator) % n_folds)[part]

    def _connected_parts(self) -> Tensor:
        """Return the connected part of each row, where rows are linked by groups and subjects."""
        n_rows = len(self.rows)
        members = [s.groups.members for s in self.sets]
        links = [s.groups.segments.index for s in self.sets]
        if self.subjects is not None:
            members.append(torch.arange(n_rows))
            links.append(self.subjects.unique(return_inverse=True)[1])
        nodes, first = [], n_rows
        for link in links:
            nodes.append(link + first)
            first += int(link.max()) + 1
        edges = (torch.cat(members).numpy(), torch.cat(nodes).numpy())
        graph = coo_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(first, first))
        part = connected_components(graph, directed=False)[1][:n_rows]
        return torch.from_numpy(np.unique(part, return_inverse=True)[1])
