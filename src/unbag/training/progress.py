"""Showing how a long run is doing: a bar in a terminal, a log everywhere."""

from __future__ import annotations

import logging
import math
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

    def epoch(self, entry: dict[str, Any], epochs: int) -> None:
        """Take note of a finished epoch, given its entry in the history."""
        logger.info("epoch %d of %d, %s", entry["epoch"] + 1, epochs, summary(entry))


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

    def epoch(self, entry: dict[str, Any], epochs: int) -> None:
        """Move the bar on by an epoch."""
        super().epoch(entry, epochs)
        self._progress.update(self._task, completed=entry["epoch"] + 1, total=epochs, summary=summary(entry))


def summary(entry: dict[str, Any]) -> str:
    """Say in a few words how an epoch went: the mean loss of the replicas and, by the first criterion, the best score.

    Examples
    --------
    >>> summary({"loss": [0.5, 0.7], "score": [-1.25, -1.5]})
    'loss 0.6, score -1.25'
    """
    said = f"loss {sum(entry['loss']) / len(entry['loss']):.4g}"
    if entry["score"] is None:
        return said
    scores = entry["score"][0] if isinstance(entry["score"][0], list) else entry["score"]
    best = max((score for score in scores if not math.isnan(score)), default=math.nan)
    return f"{said}, score {best:.4g}"
