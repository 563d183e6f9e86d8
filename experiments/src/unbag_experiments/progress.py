"""A progress bar of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """Show epoch, loss, score and remaining time, if standard error is a terminal.

    It is called after every epoch, within a ``with`` statement.
    """

    def __init__(self, title: str = "training", console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[summary]}"))
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._progress.add_task(title, total=None, summary="")

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, history: Sequence[dict[str, Any]], epochs: int) -> None:
        """Advance the bar to the last epoch of the history."""
        done = history[-1]["epoch"] + 1
        self._progress.update(self._task, completed=done, total=epochs, summary=summary(history))


def summary(history: Sequence[dict[str, Any]]) -> str:
    """Describe the last epoch: the mean loss, the best score by the first criterion, and which epoch had the highest.

    Examples
    --------
    >>> first, second = {"epoch": 0, "loss": [0.5, 0.7], "score": [-1.25, -1.5]}, {"loss": [0.5], "score": [-1.375]}
    >>> summary([first])
    'loss 0.6, score -1.25, the best so far'
    >>> summary([first, second])
    'loss 0.5, score -1.375, best -1.25 in epoch 1'
    """
    last = history[-1]
    text = f"loss {sum(last['loss']) / len(last['loss']):.4g}"
    if last["score"] is None:
        return text
    text += f", score {_best_score(last):.4g}"
    scored = [(score, entry) for entry in history if not math.isnan(score := _best_score(entry))]
    if not scored:
        return text
    best, entry = max(reversed(scored), key=lambda pair: pair[0])  # of equal scores the last
    return f"{text}, the best so far" if entry is last else f"{text}, best {best:.4g} in epoch {entry['epoch'] + 1}"


def _best_score(entry: dict[str, Any]) -> float:
    scores = entry["score"] or [math.nan]
    scores = scores[0] if isinstance(scores[0], list) else scores
    return max((score for score in scores if not math.isnan(score)), default=math.nan)
