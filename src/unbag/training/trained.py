"""The result of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a training run."""

    models: list[Any]
    """A model for each seed, with the weights of its best epoch, ready to predict."""
    history: list[dict[str, Any]]
    """An entry for each epoch: ``epoch``, ``phase``, ``loss`` and ``score`` of each replica, ``seconds``.

    A replica that has stopped keeps its last loss and its best score. With several criteria, ``score`` is a list of the
    scores of each."""
    best_epoch: list[int]
    best_score: list[float] | None
    others: list[Trained] = field(default_factory=list)
    """The result by each criterion after the first, with the same history."""


def stack_runs(runs: Sequence[Trained]) -> Trained:
    """Combine runs of single replicas; after the end of a run, its last entry of the history is repeated."""
    length = max(len(run.history) for run in runs)
    # (epochs, runs)
    entries = [[run.history[min(epoch, len(run.history) - 1)] for run in runs] for epoch in range(length)]
    longest = max(runs, key=lambda run: len(run.history)).history
    history = [
        {
            **longest[epoch],
            "loss": [entry["loss"][0] for entry in row],
            "score": _stack_scores([entry["score"] for entry in row], 1 + len(runs[0].others)),
            "seconds": sum(run.history[epoch]["seconds"] for run in runs if epoch < len(run.history)),
        }
        for epoch, row in enumerate(entries)
    ]

    def combine(results: Sequence[Trained]) -> Trained:
        scores = [math.nan if result.best_score is None else result.best_score[0] for result in results]
        scored = any(result.best_score is not None for result in results)
        epochs = [result.best_epoch[0] for result in results]
        return Trained([result.models[0] for result in results], history, epochs, scores if scored else None)

    others = [combine(results) for results in zip(*(run.others for run in runs), strict=True)]
    return replace(combine(runs), others=others)


def _stack_scores(scores: Sequence[Any], n_criteria: int) -> list[Any] | None:
    """Combine the scores of single replicas; NaN for a replica without score."""
    if all(score is None for score in scores):
        return None
    if n_criteria == 1:
        return [math.nan if score is None else score[0] for score in scores]
    return [[math.nan if score is None else score[n][0] for score in scores] for n in range(n_criteria)]
