"""What a training run leaves behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training run leaves behind."""

    models: list[Any]
    """One for each seed, with the weights of its best epoch, ready to predict."""
    history: list[dict[str, Any]]
    """One entry for each epoch: ``epoch``, ``phase``, ``loss`` and ``score`` of each replica, ``seconds``.

    A replica that has stopped learns no more, and keeps its last loss and its best score; on a GPU, or where random
    numbers are drawn for all replicas together, it goes on until all have stopped, which changes nothing it leaves.
    With several criteria, ``score`` is a list of the scores of each."""
    best_epoch: list[int]
    best_score: list[float] | None
    others: list[Trained] = field(default_factory=list)
    """The same of each criterion after the first, with the same history."""

    def take(self, replicas: Sequence[int]) -> Trained:
        """Return some of the replicas, by the first criterion."""

        def chosen(entries: list[Any] | None) -> list[Any] | None:
            return None if entries is None else [entries[place] for place in replicas]

        history = [{**entry, "loss": chosen(entry["loss"]), "score": chosen(entry["score"])} for entry in self.history]
        scores = chosen(self.best_score)
        return Trained(
            [self.models[place] for place in replicas], history, [self.best_epoch[r] for r in replicas], scores
        )


def side_by_side(runs: Sequence[Trained]) -> Trained:
    """Put runs of single replicas together; one that stopped early keeps its last numbers, one not scored has NaN."""

    def at(run: Trained, epoch: int) -> dict[str, Any]:
        return run.history[min(epoch, len(run.history) - 1)]

    def scores_at(run: Trained, epoch: int, criterion: int | None) -> float:
        scores = at(run, epoch)["score"]
        if scores is None:
            return math.nan
        return float(scores[0] if criterion is None else scores[criterion][0])

    longest = max(runs, key=lambda run: len(run.history)).history
    criteria = [None] if not runs[0].others else range(1 + len(runs[0].others))
    history = []
    for epoch, entry in enumerate(longest):
        scored = any(at(run, epoch)["score"] is not None for run in runs)
        scores = [[scores_at(run, epoch, criterion) for run in runs] for criterion in criteria]
        history.append(
            {
                **entry,
                "loss": [at(run, epoch)["loss"][0] for run in runs],
                "score": None if not scored else scores[0] if criteria == [None] else scores,
                "seconds": sum(run.history[epoch]["seconds"] for run in runs if epoch < len(run.history)),
            }
        )

    def together(parts: Sequence[Trained]) -> Trained:
        scores = [math.nan if part.best_score is None else part.best_score[0] for part in parts]
        scored = any(part.best_score is not None for part in parts)
        epochs = [part.best_epoch[0] for part in parts]
        return Trained([part.models[0] for part in parts], history, epochs, scores if scored else None)

    others = [together(parts) for parts in zip(*(run.others for run in runs), strict=True)]
    return replace(together(runs), others=others)
