"""The best epoch of each replica, the weights that it had then, and rules that stop training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import describe
from unbag.training.replicas import Replicas

StoppingRule = Callable[["Best", Sequence[dict[str, Any]]], "Tensor | bool"]
"""Called after every epoch with the best epochs by a criterion so far and the history of all epochs; returns which
replicas stop now, (replicas,), or whether all do."""


@dataclass(eq=False)
class Best:
    """The best epoch of each replica by one criterion so far.

    Of epochs with equal scores, the latest is the best.
    """

    weights: dict[str, Tensor]
    """A snapshot of the replicas, each at its best epoch."""
    score: Tensor
    """The score of that epoch, (replicas,); -inf before the first one."""
    epoch: Tensor
    """The number of that epoch, (replicas,); -1 before the first one."""
    improved: Tensor
    """The last epoch whose score was higher than all before, (replicas,)."""
    stopped: Tensor
    """Which replicas have stopped, (replicas,)."""

    @classmethod
    def before_training(cls, replicas: Replicas, device: torch.device) -> Best:
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
    """A rule that stops a replica whose score has not improved for ``epochs`` epochs after the one that ``begins``.

    Examples
    --------
    >>> rule, best = Patience(2), Best({}, *torch.tensor([[-0.5], [0], [0], [0]]))
    >>> [bool(rule(best, [{}] * done)) for done in (1, 2, 3)]
    [False, False, True]
    """

    epochs: int
    begins: int = 0

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor:
        """Return which replicas stop, (replicas,)."""
        return len(history) - 1 - best.improved.clamp_min(self.begins - 1) >= self.epochs


def never(best: Best, history: Sequence[dict[str, Any]]) -> bool:
    """Stop no replica before the last epoch."""
    return False


@dataclass(frozen=True)
class TimeLimit:
    """A rule that stops all replicas after a number of seconds of training, and follows another rule before.

    Examples
    --------
    >>> rule = TimeLimit(1.5, Patience(9))
    >>> rule(None, [{"seconds": 1.0}, {"seconds": 1.0}])
    True
    """

    seconds: float
    rule: StoppingRule = never

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor | bool:
        """Return True when time is over, and else what the other rule returns."""
        return True if sum(entry["seconds"] for entry in history) >= self.seconds else self.rule(best, history)
