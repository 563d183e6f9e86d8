"""Rates of wrong observations, estimated from held-out predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate, Noisy
from unbag.aggregates.noisy import fits_rate
from unbag.learners import Problem
from unbag.training import Observations

MIN_CHANGE = 0.02
"""A rate that changes by less hardly changes what is learned."""
MAX_ROUNDS = 4
MAX_RATE = 0.49
"""At one half, observations carry no information."""
MIN_GROUPS = 4


def fit_error_rates(problem: Problem, predict_out_of_fold: Callable[[Problem], Tensor]) -> Problem:
    """Return the problem with the error rates of its noisy observations, which are fitted where they are unknown.

    Models are first fitted with a rate that is too large, so that they rely little on each observation. Their held-out
    predictions give a better rate, and so on until it settles.

    Parameters
    ----------
    problem
        Rows and observations.
    predict_out_of_fold
        Fits quick models to a problem, and returns the held-out log-probabilities of its memberships.
    """
    unknown = {n: s.aggregate for n, s in enumerate(problem.sets) if fits_rate(s.aggregate)}
    for n in unknown:
        if (n_groups := len(problem.sets[n].groups)) < MIN_GROUPS:
            raise ValueError(
                f'rate="fit" needs at least {MIN_GROUPS} observations, some of which are held out; got {n_groups}; '
                "pass a rate, or collect more observations"
            )
    rates: dict[int, float] = {}
    for _ in range(MAX_ROUNDS if unknown else 0):
        out_of_fold, before = problem.per_set(predict_out_of_fold(problem)), rates
        rates = {n: _most_likely_rate(aggregate, problem.sets[n], out_of_fold[n]) for n, aggregate in unknown.items()}
        sets = [
            replace(s, aggregate=unknown[n].with_rate(rates[n])) if n in rates else s
            for n, s in enumerate(problem.sets)
        ]
        problem = replace(problem, sets=tuple(sets))
        if before and max(abs(rates[n] - before[n]) for n in rates) < MIN_CHANGE:
            break
    return problem


def fitted_rate(aggregate: Aggregate) -> float:
    """Return the error rate of a noisy observation."""
    return float(aggregate.rate)  # type: ignore[attr-defined]


def _most_likely_rate(aggregate: Noisy, observations: Observations, members: Tensor) -> float:
    """Return the rate that best explains observations by predictions of their members, which are NaN where missing."""
    segments = observations.groups.segments
    judged = segments.sum((~members.isfinite().all(1)).long()) == 0
    if (n_judged := int(judged.sum())) < MIN_GROUPS:
        raise ValueError(
            f'rate="fit" needs at least {MIN_GROUPS} observations all of whose rows are held out; got {n_judged} of '
            f"{len(judged)}; pass validation=unbag.CrossFitting(n_folds=4), which holds out each observation, or a rate"
        )
    inside = segments.expand(judged)
    kept = Segments.from_sizes(segments.sizes[judged])
    rate = aggregate.most_likely_rate(
        members[inside].double(), kept, observations.checked[judged], observations.weights[judged]
    )
    return min(rate, MAX_RATE)
