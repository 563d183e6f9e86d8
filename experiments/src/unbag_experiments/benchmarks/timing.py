"""Timing: medians of alternating runs, so that a busy moment of the machine hits both sides."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def alternate(
    ours: Callable[[], Any],
    reference: Callable[[], Any],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Return the median milliseconds of two functions, run in turns for about so many seconds.

    ``time.process_time`` as the clock leaves out what other processes take of a busy machine.

    Examples
    --------
    >>> ours, reference = alternate(lambda: sum(range(10)), lambda: sum(range(100_000)), seconds=0.05)
    >>> ours < reference
    True
    """
    ours(), reference()  # what is made once is not counted
    times: tuple[list[float], list[float]] = ([], [])
    stop = clock() + seconds
    while clock() < stop or len(times[1]) < 3:
        for own, run in zip(times, (ours, reference), strict=True):
            for _ in range(5):  # in a row, as in a training loop
                start = clock()
                run()
                own.append(1e3 * (clock() - start))
    return statistics.median(times[0]), statistics.median(times[1])
