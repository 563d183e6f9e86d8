"""Showing how a long run is doing: a bar in a terminal, a log everywhere."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger("unbag")


class LogProgress:
    """Shows nothing, but logs every epoch at level INFO."""

    def __enter__(self) -> LogProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def epoch(self, history: Sequence[dict[str, Any]], epochs: int) -> None:
        """Take note of a finished epoch, the last of the history."""
        logger.info("epoch %d of %d, %s", history[-1]["epoch"] + 1, epochs, summary(history))


class ProgressBar(LogProgress):
    """A progress bar with epoch, loss, score and time left; silent where standard error is no terminal."""

    def __init__(self, title: str = "training", console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[summary]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=None, summary="")

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def epoch(self, history: Sequence[dict[str, Any]], epochs: int) -> None:
        """Move the bar on by an epoch."""
        super().epoch(history, epochs)
        done = history[-1]["epoch"] + 1
        self._progress.update(self._task, completed=done, total=epochs, summary=summary(history))


def summary(history: Sequence[dict[str, Any]]) -> str:
    """Say how the last epoch went: the mean loss of the replicas, the best score, and which epoch had the best so far.

    The score is that of the first criterion; of equal ones the later is the better, as it is for what is kept.

    Examples
    --------
    >>> first, second = {"epoch": 0, "loss": [0.5, 0.7], "score": [-1.25, -1.5]}, {"loss": [0.5], "score": [-1.375]}
    >>> summary([first])
    'loss 0.6, score -1.25, the best so far'
    >>> summary([first, second])
    'loss 0.5, score -1.375, best -1.25 in epoch 1'
    """
    entry = history[-1]
    text = f"loss {sum(entry['loss']) / len(entry['loss']):.4g}"
    if entry["score"] is None:
        return text
    scored = [(score, one) for one in history if not math.isnan(score := _best_score(one))]
    text += f", score {_best_score(entry):.4g}"
    if not scored:
        return text
    best, of = max(reversed(scored), key=lambda one: one[0])
    return f"{text}, the best so far" if of is entry else f"{text}, best {best:.4g} in epoch {of['epoch'] + 1}"


def _best_score(entry: dict[str, Any]) -> float:
    """Return the score of the best replica; NaN where none has one."""
    scores = entry["score"] or [math.nan]
    scores = scores[0] if isinstance(scores[0], list) else scores
    return max((score for score in scores if not math.isnan(score)), default=math.nan)
