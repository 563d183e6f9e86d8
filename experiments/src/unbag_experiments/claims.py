"""Counts of what of the paper is reproduced and what is not: the first lines of the pages of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from unbag_experiments.comparison import Row

AGREEMENT = {"better": "UUM is better", "level": "level", "worse": "UUM is worse"}


def claims(rows: Sequence[Row]) -> tuple[str, ...]:
    """Say in five lines how far the trials are, and how they compare with the paper; what goes beyond it is left out.

    Examples
    --------
    >>> claims([])[0]
    'Run: 0 of 0 planned trials, in 0 of 0 cells.'
    """
    rows = [row for row in rows if not row.is_beyond]
    return (_coverage(rows), _means(rows), _marks(rows), _against_likelihood(rows), _without_labels(rows))


def _coverage(rows: Sequence[Row]) -> str:
    done, planned = sum(row.trials for row in rows), sum(row.planned for row in rows)
    return f"Run: {done} of {planned} planned trials, in {sum(bool(row.trials) for row in rows)} of {len(rows)} cells."


def _means(rows: Sequence[Row]) -> str:
    printed = [row for row in rows if row.key.method == "uum" and row.paper is not None]
    standing = Counter(row.standing for row in printed)
    tested = Counter(row.against_paper for row in printed)
    return (
        f"UUM's figures: of {len(printed)} in the paper {len(printed) - standing[None]} have been run. Our mean is at "
        f"or above the paper's in {standing['reached']}, below it within its deviation in {standing['within']} and "
        f"further below in {standing['below']}; by Welch's test above in {tested['better']}, level in "
        f"{tested['level']} and below in {tested['worse']} of {len(printed) - tested[None]}."
    )


def _marks(rows: Sequence[Row]) -> str:
    parts = []
    for theirs, words in AGREEMENT.items():
        tested = [str(row.labels.mark) for row in rows if row.papers_mark == theirs and row.labels.mark is not None]
        ours = Counter(tested)
        contrary = {"better": "worse", "worse": "better"}.get(theirs)
        if contrary is None:
            others = f"better {ours['better']}, worse {ours['worse']}"
        else:
            others = f"level {ours['level']}, contrary {ours[contrary]}"
        marks = f"of {ours.total()} tested {ours[theirs]} reproduced, {others}" if ours else "none tested"
        parts.append(f"“{words}”: {marks}")
    return f"The paper's marks: {'; '.join(parts)}."


def _against_likelihood(rows: Sequence[Row]) -> str:
    theirs = [row for row in rows if row.key.method == "log_likelihood"]
    sentences = [
        f"{name} {_counted(row.labels.mark for row in theirs if (row.key.protocol == 'paper') == papers)}"
        for name, papers in (("in the paper's protocols", True), ("in the others", False))
    ]
    return f"Against the log-likelihood UUM is, {'; '.join(sentences)}."


def _without_labels(rows: Sequence[Row]) -> str:
    both = [row for row in rows if row.key.method == "uum" and row.trials and "groups" in row.by]
    changes = [(row.by["groups"].mean or 0.0) - (row.mean or 0.0) for row in both]
    change = f"{np.mean(changes):+.2f} points on average over {len(both)} cells" if both else "not run"
    marks = _counted(row.by["groups"].mark for row in rows if "groups" in row.by)
    return f"Chosen by left-out groups, without labels, UUM's accuracy: {change}; against all methods UUM is {marks}."


def _counted(marks: Iterable[str | None]) -> str:
    counts = Counter(mark for mark in marks if mark is not None)
    if not counts:
        return "not tested"
    better, level, worse = (counts[mark] for mark in ("better", "level", "worse"))
    return f"better in {better}, level in {level}, worse in {worse} of {counts.total()} tested"
