"""What every family of models is: fitted to observed groups, it says how likely each class of a row is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from unbag.training import Observations, Trained
from unbag.training.scaling import ScalingName


class Model(Protocol):
    """A fitted model of single rows."""

    @property
    def n_parameters(self) -> int | None:
        """How many numbers were learned, where that is known."""

    def log_probs(self, X: Tensor) -> Tensor:
        """Return the log-probability of each class for each row, ``(n, classes)``, in float64 on the CPU."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained replicas, and which of them is the best."""

    trained: Trained
    scalings: list[ScalingName]
    """Of each replica."""
    scores: list[float]
    """Log-likelihood per group of each replica: of held-out groups, or of all where none were held out."""

    @property
    def best(self) -> int:
        """The number of the best replica."""
        return int(np.nanargmax(self.scores))

    @property
    def same_scaling_as_best(self) -> list[int]:
        """The best replica and then all others with its scaling."""
        others = [
            r for r, scaling in enumerate(self.scalings) if scaling == self.scalings[self.best] and r != self.best
        ]
        return [self.best, *others]

    def of_scaling(self, scaling: ScalingName) -> Fitted:
        """Return the replicas of one scaling alone."""
        own = [replica for replica, other in enumerate(self.scalings) if other == scaling]
        return Fitted(self.trained.take(own), [scaling] * len(own), [self.scores[replica] for replica in own])

    def log_probs(self, X: Tensor) -> Tensor:
        """Return the log-probability of each class for each row, by the best replica."""
        return self.trained.models[self.best].log_probs(X)


class Family(Protocol):
    """One kind of model, with its settings."""

    def fit(
        self,
        X: Any,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Fit to sets of observed groups.

        Parameters
        ----------
        X
            All rows, as a tensor; networks read them from a source, too.
        used
            The sets to learn from.
        held_out
            The groups that choose by their likelihood when to stop, and which replica is best; empty where there are
            none.
        seed
            Of the first replica; further replicas have the numbers that follow.
        time_limit
            Seconds after which no further round is begun; the best so far is returned. None: as long as it takes.
        goal
            The log-likelihood per held-out group that another family has reached: learning ends once that is out of
            reach, see :class:`unbag.training.best.OutOfReach`; the best so far is returned.
        """
