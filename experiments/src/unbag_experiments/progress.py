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
    """Describe the last epoch by the mean loss and the best score of the replicas, by the first criterion.

    Examples
    --------
    >>> summary([{"epoch": 0, "loss": [0.5, 0.7], "score": [-1.25, -1.5]}])
    'loss 0.6, score -1.25'
    """
    loss, score = history[-1]["loss"], history[-1]["score"]
    text = f"loss {sum(loss) / len(loss):.4g}"
    if score is None:
        return text
    scores = score[0] if isinstance(score[0], list) else score
    return f"{text}, score {max((one for one in scores if not math.isnan(one)), default=math.nan):.4g}"
