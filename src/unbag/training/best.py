"""The best epoch of each replica by one criterion, the weights that it had then, and when it stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unbag._utils.checks import describe
from unbag.training.replicas import Replicas

StoppingRule = Callable[["Best", Sequence[dict[str, Any]]], "Tensor | bool"]
"""Asked after every epoch, with what a criterion has chosen so far and the history of all epochs: which replicas stop
now, (replicas,), or whether all do. One that has stopped stays so."""


@dataclass(eq=False)
class Best:
    """What one criterion has chosen so far; everything here changes, and is saved with a run.

    Parameters
    ----------
    weights
        A snapshot of the replicas, each at its best epoch.
    score, epoch
        Of that epoch, (replicas,); -inf and -1 where there has been none.
    improved
        The last epoch that was better than all before it; the best is the later of equal ones, which trained longer.
    stopped
        Which replicas have stopped: alone, they would not go on.
    """

    weights: dict[str, Tensor]
    score: Tensor
    epoch: Tensor
    improved: Tensor
    stopped: Tensor

    @classmethod
    def of_none(cls, replicas: Replicas, device: torch.device) -> Best:
        """Return the choice before the first epoch."""
        score = torch.full((replicas.n,), float("-inf"), dtype=torch.float64, device=device)
        epoch = torch.full((replicas.n,), -1, dtype=torch.int64, device=device)
        return cls(replicas.snapshot(), score, epoch, epoch.clone(), torch.zeros_like(epoch, dtype=torch.bool))

    def keep_latest(self, replicas: Replicas, epoch: int) -> None:
        """Choose the epoch that ends now, where nothing else decides."""
        self._take(replicas, ~self.stopped, epoch)

    def update(self, replicas: Replicas, epoch: int, scores: Tensor) -> None:
        """Choose the epoch that ends now for the replicas that are better, or as good; NaN is never better."""
        better = (scores >= self.score) & ~self.stopped
        self._take(replicas, better, epoch)
        self.improved[better & (scores > self.score)] = epoch
        self.score[better] = scores[better]

    def stop_by(self, rule: StoppingRule, history: Sequence[dict[str, Any]]) -> None:
        """Ask a rule, after an epoch, which replicas stop."""
        stops = torch.as_tensor(rule(self, history), device=self.stopped.device)
        if stops.dtype != torch.bool or stops.shape not in ((), self.stopped.shape):
            raise ValueError(
                f"stopping must return True or False, or one of them for each of {len(self.stopped)} replicas; got "
                f"{describe(stops)}"
            )
        self.stopped |= stops

    def _take(self, replicas: Replicas, better: Tensor, epoch: int) -> None:
        replicas.update_best(self.weights, better)
        self.epoch[better] = epoch

    def diverged(self) -> Tensor:
        """Say which replicas never had a score that is a number, or have weights that are none, (replicas,)."""
        undefined = torch.stack([tensor.reshape(len(tensor), -1).isnan().any(1) for tensor in self.weights.values()])
        return (self.epoch < 0) | undefined.any(0)


@dataclass(frozen=True)
class Patience:
    """The rule that stops a replica once its score has not improved for so many epochs.

    Parameters
    ----------
    epochs
        How many.
    begins
        The epoch, counted from 0, from which on it counts.

    Examples
    --------
    >>> rule, best = Patience(2), Best({}, *torch.tensor([[-0.5], [0], [0], [0]]))
    >>> [bool(rule(best, [{}] * done)) for done in (1, 2, 3)]
    [False, False, True]
    """

    epochs: int
    begins: int = 0

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor:
        """Say which replicas have not improved for too long, (replicas,)."""
        return len(history) - 1 - best.improved.clamp_min(self.begins - 1) >= self.epochs


@dataclass(frozen=True)
class Plateau:
    """The rule that stops a replica once its best score has risen too little over so many epochs.

    Slow progress without end, as of classes that a plane parts, is none. Where nothing is held out, the loss says how
    much there still is to learn: its negative is taken for the score.

    Parameters
    ----------
    epochs
        How many; all of them have a score, or none has.
    begins
        The epoch, counted from 0, from which on it counts.
    tolerance
        What is too little, relative to one more than the size of the score.
    tolerance_of_loss
        The same where nothing is held out: the groups that are learned from are explained ever better.

    Examples
    --------
    >>> history = [{"score": [-1.0, -1.0]}, {"score": [-0.9, -1.2]}, {"score": [-0.8, -0.9999]}]
    >>> Plateau(2)(None, history)
    tensor([False,  True])
    """

    epochs: int
    begins: int = 0
    tolerance: float = 2e-3
    tolerance_of_loss: float = 5e-2

    def __call__(self, best: Best | None, history: Sequence[dict[str, Any]]) -> Tensor | bool:
        """Say which replicas have risen too little, (replicas,)."""
        if len(history) <= self.begins + self.epochs:
            return False
        scored = history[0]["score"] is not None
        scores = torch.tensor([entry["score" if scored else "loss"] for entry in history], dtype=torch.float64)
        scores, tolerance = (scores, self.tolerance) if scored else (-scores, self.tolerance_of_loss)
        before, now = (scores[:end].nan_to_num(-torch.inf).amax(0) for end in (-self.epochs, len(scores)))
        return ~(now - before > tolerance * (1 + now.abs()))


@dataclass(frozen=True)
class LongAfterFall:
    """The rule that stops a replica after so many times the epochs in which its loss fell to a part of the first one.

    For a loss that is near zero before the model is at its best: the longer it took to get there, the longer the model
    goes on to improve.

    Parameters
    ----------
    times
        How many times as many epochs.
    part
        Of the loss of the first epoch.

    Examples
    --------
    >>> history = [{"loss": [1.0, 1.0]}, {"loss": [0.009, 0.4]}, {"loss": [0.5, 0.2]}, {"loss": [0.2, 0.1]}]
    >>> [LongAfterFall(2)(None, history[:done]).tolist() for done in (3, 4)]
    [[False, False], [True, False]]
    """

    times: int
    part: float = 0.01

    def __call__(self, best: Best | None, history: Sequence[dict[str, Any]]) -> Tensor:
        """Say which replicas have gone on for long enough, (replicas,)."""
        losses = torch.tensor([entry["loss"] for entry in history], dtype=torch.float64)
        fallen = losses <= self.part * losses[0]
        taken = fallen.int().argmax(0) + 1  # epochs
        return fallen.any(0) & (len(history) >= self.times * taken)


def never(best: Best, history: Sequence[dict[str, Any]]) -> bool:
    """Stop no replica before the last epoch."""
    return False


@dataclass(frozen=True)
class OutOfReach:
    """The rule that stops all replicas once they cannot reach a score that others have, and follows another before.

    Every further doubling of the number of epochs is taken to bring as much as the last one did; mostly it brings less,
    but for those at the beginning.

    Parameters
    ----------
    goal
        The score, of the best of each fold's replicas on average.
    epochs
        How many there are at most.
    begins
        After how many of them it is asked for the first time.
    rule
        What is followed before.
    of_fold
        How many replicas in a row are those of one fold.

    Examples
    --------
    >>> slow = [{"score": [-4.0 + 0.01 * epoch]} for epoch in range(10)]
    >>> OutOfReach(-3.8, 100, 10)(None, slow), OutOfReach(-3.6, 100, 10)(None, slow)
    (False, True)
    """

    goal: float
    epochs: int
    begins: int
    rule: StoppingRule = never
    of_fold: int = 1

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor | bool:
        """Say whether the score is out of reach, or else what the other rule says."""
        n = len(history)
        if n >= max(2, self.begins):
            now, before = self._best(history), self._best(history[: n // 2])
            if now + (now - before) * math.log2(self.epochs / n) < self.goal:
                return True
        return self.rule(best, history)

    def _best(self, history: Sequence[dict[str, Any]]) -> float:
        scores = torch.tensor([entry["score"] for entry in history], dtype=torch.float64)
        return float(scores.amax(0).view(-1, self.of_fold).amax(1).mean())


@dataclass(frozen=True)
class TimeLimit:
    """The rule that stops all replicas with the epoch in which a number of seconds is over, and follows another before.

    Examples
    --------
    >>> rule = TimeLimit(1.5, Patience(9))
    >>> rule(None, [{"seconds": 1.0}, {"seconds": 1.0}])
    True
    """

    seconds: float
    rule: StoppingRule = never

    def __call__(self, best: Best, history: Sequence[dict[str, Any]]) -> Tensor | bool:
        """Say whether time is over, or else what the other rule says."""
        return True if sum(entry["seconds"] for entry in history) >= self.seconds else self.rule(best, history)
