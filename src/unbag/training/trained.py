"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a training run."""

    models: list[Any]
    """A model for each seed, with the weights of its best epoch, ready to predict."""
    history: list[dict[str, Any]]
    """An entry for each epoch: ``epoch``, ``phase``, ``loss`` and ``score`` of each replica, ``seconds``.

    With several criteria, ``score`` is a list of the scores of each."""
    best_epoch: list[int]
    best_score: list[float] | None
    others: list[Trained] = field(default_factory=list)
    """The result by each criterion after the first, with the same history."""
