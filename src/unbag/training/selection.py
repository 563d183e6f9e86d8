"""Scores that select an epoch and a replica: by held-out groups, or by labelled rows where there are some."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from unbag._utils.parts import join
from unbag.aggregates.observations import Observations
from unbag.data.row_source import Rows, gather_rows

ROWS_AT_ONCE = 65_536
"""Rows on disk that are read at a time."""

Predict = Callable[[Tensor], Tensor]
"""From rows, (n, ...), to the logits of each replica, (replicas, n, k)."""
Score = Callable[[Predict], Tensor]
"""From predictions to a number for each replica, larger is better, (replicas,); or one for each of several criteria,
(criteria, replicas)."""


@dataclass(frozen=True, eq=False)
class _HeldOutLikelihood:
    X: Rows
    observations: Sequence[Observations]

    @cached_property
    def _rows(self) -> tuple[Tensor, list[Tensor]]:
        """The rows of all groups, and the places of the members of each set among them."""
        rows, members = torch.cat([s.groups.members for s in self.observations]).unique(return_inverse=True)
        return rows, members.split([len(s.groups.members) for s in self.observations])

    @cached_property
    def _inputs(self) -> Tensor:
        rows = self._rows[0]
        return self.X if isinstance(self.X, Tensor) and len(rows) == len(self.X) else gather_rows(self.X, rows)

    def __call__(self, predict: Predict) -> Tensor:
        rows, members_of_sets = self._rows
        if isinstance(self.X, Tensor):
            logits = predict(self._inputs)
        else:  # rows on disk are read again each time
            logits = join((predict(gather_rows(self.X, part)) for part in rows.split(ROWS_AT_ONCE)), len(rows), 1)
        scores = [self._mean_log_likelihood(replica, members_of_sets) for replica in logits]
        return torch.tensor(scores, dtype=torch.float64, device=logits.device)

    def _mean_log_likelihood(self, logits: Tensor, members_of_sets: Sequence[Tensor]) -> float:
        total = 0.0
        for s, members in zip(self.observations, members_of_sets, strict=True):
            of_members = logits[members].float()
            if bool(of_members.log_softmax(-1).isnan().any()):  # a replica that diverged does not end the others
                return math.nan
            log_likelihood = s.aggregate.checked_evidence(of_members, s.groups.segments, s.checked).log_likelihood
            total += s.weight * float(s.mean(log_likelihood))
        return total / sum(s.weight for s in self.observations)


def held_out_likelihood(X: Rows, observations: Sequence[Observations]) -> Score:
    """Score by the mean log-likelihood of groups that were not trained on, which needs no label of any row.

    Sets of observations count by their weights, and so do the groups of a set.
    """
    return _HeldOutLikelihood(X, [s.counting() for s in observations])


@dataclass(frozen=True, eq=False)
class _LabelledAccuracy:
    X: Tensor
    y: Tensor
    permuted: bool

    def __call__(self, predict: Predict) -> Tensor:
        predicted = predict(self.X).argmax(-1)  # (replicas, n)
        if not self.permuted:
            return (predicted == self.y).double().mean(1)
        scores = [permuted_accuracy(replica, self.y) for replica in predicted]
        return torch.tensor(scores, dtype=torch.float64, device=self.y.device)


def labelled_accuracy(X: Tensor, y: Tensor, *, permuted: bool = False) -> Score:
    """Score by the accuracy on labelled rows; ``permuted`` is for methods that cannot name the classes."""
    return _LabelledAccuracy(X, y, permuted)


def permuted_accuracy(guessed: Tensor, y: Tensor) -> float:
    """Compute the accuracy under the best assignment of predicted classes to true ones.

    Examples
    --------
    >>> permuted_accuracy(torch.tensor([2, 2, 0, 1]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (takes a tenth of a second)

    k = int(max(guessed.max(), y.max())) + 1
    together = torch.bincount(guessed * k + y, minlength=k * k).view(k, k).cpu().numpy()
    rows, columns = linear_sum_assignment(-together)
    return float(together[rows, columns].sum() / len(y))
