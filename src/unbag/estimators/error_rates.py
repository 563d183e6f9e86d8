"""Rates of wrong observations, estimated from held-out predictions."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates import Aggregate, Noisy
from unbag.aggregates.noisy import fits_rate
from unbag.ensemble import Align, Schedule, fit_ensemble
from unbag.learners import Problem
from unbag.training import Observations

MIN_CHANGE = 0.02
"""A rate that changes by less hardly changes what is learned."""
MAX_ROUNDS = 4
MAX_RATE = 0.49
"""At one half, observations carry no information."""
MIN_GROUPS = 4


def fit_error_rates(problem: Problem, plan: Callable[[Problem], Schedule], align: Align | None) -> Problem:
    """Return the problem with the error rates of its noisy observations, which are fitted where they are unknown.

    Models are first fitted with a rate that is too large, so that they rely little on each observation. Their held-out
    predictions give a better rate, and so on until it settles.
    """
    unknown = {n: s.aggregate for n, s in enumerate(problem.sets) if fits_rate(s.aggregate)}
    for n in unknown:
        _check_number(len(problem.sets[n].groups), "; pass a rate, or collect more observations")
    rates: dict[int, float] = {}
    for _ in range(MAX_ROUNDS if unknown else 0):
        out_of_fold = problem.per_set(fit_ensemble(problem, plan(problem).quick(), align).out_of_fold)
        before, sets = rates, list(problem.sets)
        rates = {n: _most_likely_rate(kind, sets[n], out_of_fold[n]) for n, kind in unknown.items()}
        for n, rate in rates.items():
            sets[n] = replace(sets[n], aggregate=unknown[n].with_rate(rate))
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
    advice = "; pass validation=unbag.CrossFitting(n_folds=4), which holds out each observation, or a rate"
    _check_number(int(judged.sum()), f" of {len(judged)}{advice}", " all of whose rows are held out")
    kept, inside = Segments.from_sizes(segments.sizes[judged]), members[segments.expand(judged)].double()
    rate = aggregate.most_likely_rate(inside, kept, observations.checked[judged], observations.weights[judged])
    return min(rate, MAX_RATE)


def _check_number(n: int, advice: str, which: str = ", some of which are held out") -> None:
    if n < MIN_GROUPS:
        raise ValueError(f'rate="fit" needs at least {MIN_GROUPS} observations{which}; got {n}{advice}')
