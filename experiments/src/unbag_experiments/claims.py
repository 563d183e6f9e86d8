"""Statements about what of the paper is reproduced and what is not: the first lines of the pages of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from unbag_experiments.comparison import Row
from unbag_experiments.standings import gaps
from unbag_experiments.statistics import SIGNIFICANCE, interval, paired_p

NOTABLE = 5.0
"""Points by which a cell beyond the paper's protocol must differ to be named."""


def claims(rows: Sequence[Row]) -> tuple[str, ...]:
    """State in six lines how far the trials are, how they compare with the paper, and what goes beyond it.

    Examples
    --------
    >>> claims([])[0]
    'Run: 0 of 0 planned trials, in 0 of 0 cells.'
    """
    beyond, rows = [row for row in rows if row.is_beyond], [row for row in rows if not row.is_beyond]
    return (
        _coverage(rows),
        _means(rows),
        _against_likelihood(rows),
        _marks(rows),
        _without_labels(rows),
        _beyond(beyond),
    )


def _coverage(rows: Sequence[Row]) -> str:
    done, planned = sum(row.trials for row in rows), sum(row.planned for row in rows)
    return f"Run: {done} of {planned} planned trials, in {sum(bool(row.trials) for row in rows)} of {len(rows)} cells."


def _means(rows: Sequence[Row]) -> str:
    counts = []
    for method, name in (("uum", "UUM"), ("log_likelihood", "the log-likelihood method")):
        standing = [row.standing for row in rows if row.key.method == method and row.standing is not None]
        counts.append(f"{name} in {standing.count('reached')} of {len(standing)} cells")
    return (
        f"Our mean accuracy is at or above the paper's for {' and for '.join(counts)}. Training differs from the "
        f"paper's, so that these counts do not show which method is better."
    )


def _against_likelihood(rows: Sequence[Row]) -> str:
    found = gaps(row for row in rows if row.paper is not None).values()
    differences = [difference for gap in found for difference in gap.differences]
    if not differences:
        return "UUM and the log-likelihood method have not been compared."
    bounds = interval(differences, 0.0) or (np.nan, np.nan)
    return (
        f"UUM minus the log-likelihood method, on average over {len(differences)} cells with at least five trials of "
        f"both: {np.mean(differences):+.2f} points (95 % interval {bounds[0]:+.2f} to {bounds[1]:+.2f}). The "
        f"difference is significant in {sum(gap.significant for gap in found)} of these cells."
    )


def _marks(rows: Sequence[Row]) -> str:
    uum = {row.key: row for row in rows if row.key.method == "uum"}
    marked = [row for row in rows if row.papers_mark == "better" and row.labels.mark is not None]
    ours = Counter(str(row.labels.mark) for row in marked)
    level = Counter(str(row.labels.mark) for row in rows if row.papers_mark == "level" and row.labels.mark is not None)
    plain: Counter[str] = Counter()
    for row in marked:
        test = paired_p(uum[row.key._replace(method="uum")].accuracies, row.accuracies, 0.0)
        if test is not None:
            plain["level" if test[1] >= SIGNIFICANCE else "better" if test[0] > 0 else "worse"] += 1
    return (
        f"Of {len(marked)} comparisons in which the paper marks UUM as significantly better, {ours['better']} are "
        f"significant here, {ours['level']} are not, and {ours['worse']} are significant in the other direction; with "
        f"the paper's uncorrected t-test {plain['better']}, {plain['level']} and {plain['worse']}. Of "
        f"{level.total()} comparisons without such a mark, {level['better']} are significantly better here and "
        f"{level['worse']} worse."
    )


def _without_labels(rows: Sequence[Row]) -> str:
    both = [row for row in rows if row.key.method == "uum" and row.trials and "groups" in row.by]
    changes = [(row.by["groups"].mean or 0.0) - (row.mean or 0.0) for row in both]
    change = f"{np.mean(changes):+.2f} points on average over {len(both)} cells" if both else "not run"
    return f"Selecting the epoch of UUM by held-out groups instead of labelled rows changes its accuracy by {change}."


def _beyond(rows: Sequence[Row]) -> str:
    by_key: Mapping[object, Row] = {row.key: row for row in rows if row.trials}
    large, cells = [], 0
    for row in by_key.values():
        uum = by_key.get(row.key._replace(method="uum"))
        if row.key.method == "log_likelihood" and uum is not None:
            cells += 1
            if abs((uum.mean or 0.0) - (row.mean or 0.0)) >= NOTABLE:
                where = f"{row.key.dataset}, {row.key.protocol.replace('_', ' ')}"
                large.append(f"{uum.mean:.1f} % against {row.mean:.1f} % ({where}, {row.trials} trials)")
    return (
        f"Beyond the paper's protocol, UUM and the log-likelihood method differ by {NOTABLE:g} points or more in "
        f"{len(large)} of {cells} cells{': ' + '; '.join(large) if large else ''}."
    )
