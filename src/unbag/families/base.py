"""What every family of models is: fitted to observed groups, it says how likely each class of a row is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from unbag.data.scaling import ScalingName
from unbag.out_of_fold import mean_log_likelihood
from unbag.training import Observations, Trained

MOST_LABELS = 256
"""Labelled rows at most, for models that grow with these."""


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


def are_few_labels(X: Tensor, observations: Sequence[Observations]) -> bool:
    """Whether these are labels of a few rows of two classes, with more columns than rows."""
    labels = len(observations) == 1 and observations[0].groups.max_size == 1 and observations[0].n_classes == 2
    few = X.ndim == 2 and len(observations[0].groups) <= min(MOST_LABELS, X.shape[1] - 1)
    return labels and few and observations[0].aggregate.outcome == "class_counts"


def judge(
    models: Sequence[Model],
    X: Tensor,
    used: Sequence[Observations],
    held_out: Sequence[Observations],
    *,
    scaling: ScalingName,
    begun: float,
) -> Fitted:
    """Return models that were not learned step by step as replicas, with their scores.

    Parameters
    ----------
    models
        Fitted, to choose from.
    X, used, held_out
        Those of :meth:`Family.fit`.
    scaling
        Of their rows.
    begun
        When fitting did, by ``time.perf_counter``.
    """

    def explain(sets: Sequence[Observations]) -> list[float]:
        return [mean_log_likelihood(sets, [model.log_probs(X[own.groups.members]) for own in sets]) for model in models]

    losses, scores = [-one for one in explain(used)], explain(held_out or used)
    seconds = time.perf_counter() - begun
    entry = {"epoch": 0, "phase": "likelihood", "loss": losses, "score": scores, "seconds": seconds}
    return Fitted(Trained([*models], [entry], [0] * len(models), scores), [scaling] * len(models), scores)
