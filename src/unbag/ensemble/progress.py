"""Progress of a fit: one bar over all jobs."""

from __future__ import annotations

import math
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Progress in jobs, each a learner on a fold; it shows nothing, and subclasses do.

    ``begin`` is called before it is entered.
    """

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def begin(self, n_jobs: int) -> None:
        """Announce how many jobs there are at most."""

    def end_step(self, name: str, score: float) -> None:
        """Report a step of a path and its held-out score."""

    def end_jobs(self, n_jobs: int = 1) -> None:
        """Report jobs that are finished, or not needed."""


class ProgressBar(Progress):
    """A bar in a terminal with the number of the job, the best held-out score and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._bar = Bar(
            TextColumn("job {task.fields[job]} of {task.total}"),
            BarColumn(),
            TextColumn("{task.fields[best]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("fit", total=0, job=1, best="")
        self._lock, self._done, self._total, self._best_score = Lock(), 0, 0, -math.inf

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, n_jobs: int) -> None:
        """Set the length of the bar."""
        self._done, self._total = 0, n_jobs
        self._bar.update(self._task, total=n_jobs, completed=0, job=1)

    def end_step(self, name: str, score: float) -> None:
        """Show the best held-out score of all jobs so far, and the learner that has it."""
        with self._lock:
            if score > self._best_score:
                self._best_score = score
                self._bar.update(self._task, best=f"best held-out score {score:.4g} ({name})")

    def end_jobs(self, n_jobs: int = 1) -> None:
        """Move the bar on."""
        with self._lock:
            self._done += n_jobs
            self._bar.update(self._task, completed=self._done, job=min(self._done + 1, self._total))
