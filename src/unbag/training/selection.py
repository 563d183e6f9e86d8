"""Which epoch of a replica is the best, by a score, and when it stops."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from unbag._utils.checks import describe
from unbag._utils.parts import join
from unbag.aggregates.observations import Observations
from unbag.data.row_source import Rows, RowSubset, select_rows
from unbag.training.group_subsets import renumber_rows
from unbag.training.replicas import Replicas

ROWS_AT_ONCE = 65_536
"""Rows on disk that are read at a time."""

Predict = Callable[[Tensor], Tensor]
"""From rows, (n, ...), to the logits of each replica, (replicas, n, k)."""
Score = Callable[[Predict], Tensor]
"""From predictions to a number for each replica, larger is better, (replicas,); or one for each of several criteria,
(criteria, replicas)."""
StoppingRule = Callable[["Best", Sequence[dict[str, Any]]], "Tensor | bool"]
"""Called after every epoch with the best epochs by a criterion so far and the history of all epochs; returns which
replicas stop now, (replicas,), or whether all do."""


@dataclass(frozen=True, eq=False)
class _HeldOutLikelihood:
    rows: Tensor | RowSubset
    observations: Sequence[Observations]  # of groups of these rows

    def __call__(self, predict: Predict) -> Tensor:
        logits = join((predict(part) for part in self.rows.split(ROWS_AT_ONCE)), len(self.rows), 1)
        scores = [self._mean_log_likelihood(replica.float()) for replica in logits]
        return torch.tensor(scores, dtype=torch.float64, device=logits.device)

    def _mean_log_likelihood(self, logits: Tensor) -> float:
        if bool(logits.log_softmax(-1).isnan().any()):  # a replica that diverged does not end the others
            return math.nan
        total = 0.0
        for s in self.observations:
            evidence = s.aggregate.checked_evidence(logits[s.groups.members], s.groups.segments, s.checked)
            total += s.weight * float(s.mean(evidence.log_likelihood))
        return total / sum(s.weight for s in self.observations)


def held_out_likelihood(X: Rows, observations: Sequence[Observations]) -> Score:
    """Score by the mean log-likelihood of groups that were not trained on, which needs no label of any row.

    Sets of observations count by their weights, and so do the groups of a set.
    """
    numbers, sets = renumber_rows([s.counting() for s in observations])
    rows = X if isinstance(X, Tensor) and len(numbers) == len(X) else select_rows(X, numbers)
    assert isinstance(rows, Tensor | RowSubset)
    return _HeldOutLikelihood(rows, sets)


def permuted_accuracy(guessed: Tensor, y: Tensor) -> float:
    """Compute the accuracy under the best assignment of predicted classes to true ones."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (takes a tenth of a second)

    k = int(max(guessed.max(), y.max())) + 1
    together = torch.bincount(guessed * k + y, minlength=k * k).view(k, k).cpu().numpy()
    rows, columns = linear_sum_assignment(-together)
    return float(together[rows, columns].sum() / len(y))


@dataclass(eq=False)
class Best:
    """The best epoch of each replica by one criterion so far; of epochs with equal scores, the latest.

    ``weights`` is a snapshot of the replicas, each at its best epoch; the others are tensors of shape ``(replicas,)``.
    """

    weights: dict[str, Tensor]
    score: Tensor  # of the best epoch; -inf before the first
    epoch: Tensor  # the number of the best epoch; -1 before the first
    improved: Tensor  # the last epoch whose score was higher than all before
    stopped: Tensor

    @classmethod
    def before_training(cls, replicas: Replicas, device: torch.device) -> Self:
        """Return the state before the first epoch."""
        score = torch.full((replicas.n,), float("-inf"), dtype=torch.float64, device=device)
        epoch = torch.full((replicas.n,), -1, dtype=torch.int64, device=device)
        return cls(replicas.snapshot(), score, epoch, epoch.clone(), torch.zeros_like(epoch, dtype=torch.bool))

    def update(self, replicas: Replicas, epoch: int, scores: Tensor | None) -> None:
        """Take the present epoch for replicas that train and are as good or better; without scores, for all of them."""
        better = ~self.stopped
        if scores is not None:
            better = better & (scores >= self.score)  # NaN is never better
            self.improved[better & (scores > self.score)] = epoch
            self.score[better] = scores[better]
        replicas.update_snapshot(self.weights, better)
        self.epoch[better] = epoch

    def stop_by(self, rule: StoppingRule, history: Sequence[dict[str, Any]]) -> None:
        """Stop the replicas that a rule selects."""
        stops = torch.as_tensor(rule(self, history), device=self.stopped.device)
        if stops.dtype != torch.bool or stops.shape not in ((), self.stopped.shape):
            raise ValueError(
                f"stopping must return True or False, or one of them for each of {len(self.stopped)} replicas; got "
                f"{describe(stops)}"
            )
        self.stopped |= stops

    def diverged(self) -> Tensor:
        """Return which replicas never had a score that is a number, or have weights that are NaN, (replicas,)."""
        undefined = torch.stack([tensor.reshape(len(tensor), -1).isnan().any(1) for tensor in self.weights.values()])
        return (self.epoch < 0) | undefined.any(0)


@dataclass(frozen=True)
class Patience:
    """A rule that stops a replica whose score has not improved for ``epochs`` epochs after the one that ``begins``."""

    epochs: int
    begins: int = 0

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor:
        """Return which replicas stop, (replicas,)."""
        return len(history) - 1 - best.improved.clamp_min(self.begins - 1) >= self.epochs


def never(best: Best, history: Sequence[dict[str, Any]]) -> bool:
    """Stop no replica before the last epoch."""
    return False
