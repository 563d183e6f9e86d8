"""Estimated duration of trials, from those that have been run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from unbag_experiments.plan import Work


def estimate(work: Sequence[Work], lines: Iterable[Mapping[str, Any]], *, hardware: str) -> float | None:
    """Return the seconds that trials will take; None if no line tells, of the same cell on the same hardware."""
    took: dict[str, list[float]] = {}
    for line in lines:
        if line.get("hardware") == hardware and "copied_from" not in line:
            took.setdefault(line["plan"], []).append(line["seconds"])
    if any(one.cell.digest not in took for one in work):
        return None
    return sum(len(one.seeds) * float(np.mean(took[one.cell.digest])) for one in work)


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
