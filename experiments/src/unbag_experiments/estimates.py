"""Estimated duration of trials, from those that have been run or from a few steps of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from unbag_experiments.baselines import METHODS
from unbag_experiments.plan import Cell, Work
from unbag_experiments.sampling import tasks_of
from unbag_experiments.trials import train_choices

STEPS = 4
"""Of each cell that is measured."""


def estimate(
    work: Sequence[Work],
    lines: Iterable[Mapping[str, Any]],
    *,
    hardware: str,
    load: Callable[[str], Any],
    measure: bool,
) -> float | None:
    """Return the seconds that trials will take, or None where nothing is known of some of them.

    Of ``lines``, those of the same cell on the same hardware say how long a trial takes. Of what no line tells,
    ``measure`` trains a few steps, which is worth it on a processor; a GPU needs longer to warm up.
    """
    took: dict[str, list[float]] = {}
    for line in lines:
        if line.get("hardware") == hardware and "copied_from" not in line:
            took.setdefault(line["plan"], []).append(line["seconds"])
    cached = lru_cache(maxsize=2)(load)
    total = 0.0
    for one in work:
        if one.cell.digest in took:
            total += len(one.seeds) * float(np.mean(took[one.cell.digest]))
        elif not measure:
            return None
        else:
            total += len(one.seeds) * seconds_of_a_trial(one.cell, cached(one.cell.dataset))
    return total


def seconds_of_a_trial(cell: Cell, data: Any) -> float:
    """Measure a few steps of a cell on the processor, and a score, and return what all of a trial will take."""
    method = METHODS[cell.method]
    (task,) = tasks_of(cell, data, [0], torch.device("cpu"))
    task = method.prepare(task)
    settings = method.settings(cell.settings)
    n_groups, size = len(task.observations.groups), settings.batch_size
    few = replace(task, observations=task.observations.take(torch.arange(min(STEPS * size, n_groups))))
    # The first epoch makes what is made once, the second is timed, and the third has a score.
    short = replace(settings, epochs=3, warm_up=0, remember_from=None, score_from=0, score_every=3, patience=None)
    trained = train_choices(cell, method, settings=short, tasks={0: few}, replicas=[(0, cell.choices[0])])
    _, steps, scored = (entry["seconds"] for entry in trained.history)
    epoch = steps * n_groups / len(few.observations.groups)
    scores = sum(settings.scores(number) for number in range(settings.epochs))
    return len(cell.choices) * (settings.epochs * epoch + scores * max(0.0, scored - steps))


def in_words(seconds: float) -> str:
    """Say about how long something takes.

    Examples
    --------
    >>> in_words(40), in_words(250), in_words(9000)
    ('about 40 seconds', 'about 4 minutes', 'about 2.5 hours')
    """
    if seconds < 90:
        return f"about {seconds:.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"
