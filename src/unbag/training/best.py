"""The best epoch of each replica by one criterion, and the weights that it had then."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.training.replicas import Replicas
from unbag.training.settings import Settings


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
    """

    weights: dict[str, Tensor]
    score: Tensor
    epoch: Tensor
    improved: Tensor

    @classmethod
    def of_none(cls, replicas: Replicas, device: torch.device) -> Best:
        """Return the choice before the first epoch."""
        score = torch.full((replicas.n,), float("-inf"), dtype=torch.float64, device=device)
        epoch = torch.full((replicas.n,), -1, dtype=torch.int64, device=device)
        return cls(replicas.snapshot(), score, epoch, epoch.clone())

    def given_up(self, epoch: int, settings: Settings) -> Tensor:
        """Say which replicas had not improved for too long when an epoch began, (replicas,)."""
        if settings.patience is None:
            return torch.zeros_like(self.epoch, dtype=torch.bool)
        waited = epoch - 1 - self.improved.clamp_min(settings.patient_from - 1)
        return waited >= settings.patience

    def keep_latest(self, replicas: Replicas, epoch: int) -> None:
        """Choose the epoch that ends now, where nothing else decides."""
        self._take(replicas, torch.ones_like(self.epoch, dtype=torch.bool), epoch)

    def update(self, replicas: Replicas, epoch: int, scores: Tensor, settings: Settings) -> None:
        """Choose the epoch that ends now for the replicas that are better, or as good; NaN is never better."""
        better = scores >= self.score
        better &= ~self.given_up(epoch, settings)  # alone, such a replica would have stopped
        self._take(replicas, better, epoch)
        self.improved[better & (scores > self.score)] = epoch
        self.score[better] = scores[better]

    def _take(self, replicas: Replicas, better: Tensor, epoch: int) -> None:
        replicas.copy_better(self.weights, better)
        self.epoch[better] = epoch

    def diverged(self) -> Tensor:
        """Say which replicas never had a score that is a number, or have weights that are none, (replicas,)."""
        undefined = torch.stack([tensor.reshape(len(tensor), -1).isnan().any(1) for tensor in self.weights.values()])
        return (self.epoch < 0) | undefined.any(0)
