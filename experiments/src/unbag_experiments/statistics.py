"""Tests and intervals of accuracies over random splits that overlap, and against the paper's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from unbag_experiments.plan import STATISTICS

SIGNIFICANCE: float = STATISTICS["significance"]
LEAST_TRIALS: int = STATISTICS["least_trials"]
CONFIDENCE: float = STATISTICS["confidence"]
PAPER_TRIALS: int = STATISTICS["paper_trials"]

Mark = Literal["better", "worse", "level"]


def standard_error(values: Sequence[float], overlap: float) -> float:
    """Return the standard error of a mean over random splits, corrected for what their training sets share.

    By Nadeau and Bengio (2003) the variance of n values counts ``1 / n + n_test / n_train`` times, not ``1 / n``.
    ``overlap`` is ``n_test / n_train``.

    Examples
    --------
    >>> round(standard_error([1.0, 2.0, 3.0], overlap=0.0), 4), round(standard_error([1.0, 2.0, 3.0], overlap=1 / 3), 4)
    (0.5774, 0.8165)
    """
    return math.sqrt((1 / len(values) + overlap) * float(np.var(values, ddof=1)))


def interval(values: Sequence[float], overlap: float) -> tuple[float, float] | None:
    """Return the confidence interval of a mean over random splits, by Student's t; None of fewer than two."""
    if len(values) < 2:
        return None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * standard_error(values, overlap)
    mean = float(np.mean(values))
    return mean - half, mean + half


def paired_p(ours: Mapping[int, float], others: Mapping[int, float], overlap: float) -> tuple[float, float] | None:
    """Return the mean difference on the seeds of both, and the p-value of the corrected resampled t-test.

    None of too few common seeds. Where all differences are the same there is no spread to divide by: equal accuracies
    have a p-value of 1, and a constant difference one of 0, which are the limits of the test.
    """
    seeds = sorted(ours.keys() & others.keys())
    if len(seeds) < LEAST_TRIALS:
        return None
    differences = [ours[seed] - others[seed] for seed in seeds]
    mean = float(np.mean(differences))
    if np.ptp(differences) < 1e-9:  # equal but for rounding; one test instance more or less is far above it
        return mean, float(abs(mean) < 1e-9)
    t = mean / standard_error(differences, overlap)
    return mean, float(2 * stats.t.sf(abs(t), len(seeds) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many tests there are, by Holm's step-down method.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def mark(difference: float, p: float) -> Mark:
    """Say which of two is better by a difference and its corrected p-value."""
    if p >= SIGNIFICANCE:
        return "level"
    return "better" if difference > 0 else "worse"


def welch(values: Sequence[float], mean: float, std: float | None) -> Mark | None:
    """Say whether our mean is significantly above the paper's, below it or level with it, by Welch's t-test.

    None where the paper prints no deviation, or of fewer than two trials.

    Examples
    --------
    >>> welch([97.0, 97.2, 97.1, 97.3, 97.4], 96.95, 4.14), welch([97.0, 97.2, 97.1], 95.0, 0.2)
    ('level', 'better')
    """
    if std is None or len(values) < 2:
        return None
    ours = float(np.std(values, ddof=1))
    difference = float(np.mean(values)) - mean
    if ours == std == 0:
        return mark(difference, float(abs(difference) < 1e-9))
    test = stats.ttest_ind_from_stats(
        float(np.mean(values)), ours, len(values), mean, std, PAPER_TRIALS, equal_var=False
    )
    return mark(difference, float(test.pvalue))
