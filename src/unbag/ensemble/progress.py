"""Progress of a fit: one bar over all jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from unbag.ensemble.jobs import Path


class Progress:
    """A bar in a terminal with the number of the job, the best held-out score and the time left; hidden by default."""

    def __init__(self, *, shown: bool = False, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._bar = Bar(
            TextColumn("job {task.fields[job]} of {task.total}"),
            BarColumn(),
            TextColumn("{task.fields[best]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task("fit", total=0, job=1, best="")
        self._done, self._total, self._best_score = 0, 0, -math.inf

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, n_jobs: int) -> None:
        """Set the number of jobs at most, before the bar is shown."""
        self._done, self._total = 0, n_jobs
        self.skip_jobs(0)

    def end_job(self, name: str, path: Path) -> None:
        """Move the bar on, and show the best held-out score of all jobs so far with the learner that has it."""
        if path.score > self._best_score:
            self._best_score = path.score
            self._bar.update(self._task, best=f"best held-out score {path.score:.4g} ({name})")
        self.skip_jobs(1)

    def skip_jobs(self, n_jobs: int) -> None:
        """Move the bar on for jobs that are not needed."""
        self._done += n_jobs
        job = min(self._done + 1, self._total)
        self._bar.update(self._task, total=self._total, completed=self._done, job=job)
