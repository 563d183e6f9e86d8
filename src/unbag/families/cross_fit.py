"""Cross-fitting: several candidates, every group left out once, mixed and tempered by what that shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag.data.scaling import ScalingName
from unbag.diagnostics.constant import best_constant
from unbag.families.base import Family, Fitted, Model
from unbag.families.choice import CLUSTERS, in_order
from unbag.families.components import ComponentNetworks
from unbag.families.folds import N_REFITS, SHARE_OF_REFITS, Fold, fold_of_members, make_folds, number_folds
from unbag.families.networks import Networks
from unbag.out_of_fold import (
    Estimate,
    are_too_few,
    estimate_accuracy,
    fit_mixture,
    fit_temperature,
    mean_log_likelihood,
    mean_over_sets,
    mix,
    temper,
)
from unbag.training import Observations

# How often the likelihood of all groups is computed after training, for each candidate.
LOOKS_AFTER = 30

Align = Callable[[Tensor, Tensor], np.ndarray]
"""From probabilities of the same rows by two models, ``(rows, classes)``, to the outputs of the second that mean the
classes of the first."""


class OutOfFold(NamedTuple):
    """Log-probabilities of the members of a set of observations, tempered."""

    log_probs: Tensor
    """By the models that have not seen the group, ``(memberships, classes)``."""
    by_fold: Tensor
    """By the models of each fold, ``(folds, memberships, classes)``."""


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The models of all folds of the chosen candidates, and how good they are on groups that they have not seen."""

    models: list[Model]
    names: list[str]
    """The candidate that each model is of."""
    weights: list[float]
    """Of the models in the mean of probabilities."""
    orders: list[np.ndarray]
    """For each model, which of its outputs each class is read from."""
    folds: list[int]
    """Which fold each model has left out; the number of folds where it learned from all groups."""
    temperatures: list[float]
    """By which the logits of each model are divided."""
    temperature: float
    """By which those of their mean are."""
    numbers: list[Tensor]
    """For each set, by which fold each group was left out."""
    out_of_fold: dict[int, OutOfFold]
    """What is predicted for the members of each set, by its place; a set with a single group has none."""
    candidates: list[dict[str, Any]]
    """Of each candidate: its name, its log-likelihood per left-out group, its weight in the mixture."""
    fitted: dict[str, list[Fitted]]
    """What each candidate left behind in each fold."""
    accuracy: Estimate | None
    """None where too few groups were left out."""


def cross_fit(
    candidates: Mapping[str, Family],
    X: Tensor,
    sets: Sequence[Observations],
    align: Align,
    *,
    n_folds: int,
    seed: int,
    choose: bool = True,
    time_limit: float | None = None,
) -> CrossFitted:
    """Fit every candidate on all folds but one in turn, and mix those that explain left-out groups best.

    Parameters
    ----------
    candidates
        Families of models by name.
    X
        All rows.
    sets
        What was observed of which rows.
    align
        Brings classes that observations leave unnamed into one order.
    n_folds
        How often groups are left out, at most.
    seed
        Of the folds and of the first model.
    choose
        Whether left-out groups tell which candidate is better, and how certain it may be. Otherwise candidates learn
        from all groups as well, because every group is a large part of what there is, and count as they are: those that
        begin with clusters alone, if they explain left-out groups better than the shares of the classes do, or else all
        alike.
    time_limit
        Seconds for all candidates, of which each gets half of what is left, and the last one all; None: as long as it
        takes.
    """
    numbers = [number_folds(one, n_folds, seed) for one in sets]
    learned = [one.for_training() for one in sets]  # and judged by the exact ones
    folds = make_folds(learned, numbers)
    n_folds, n_refits = len(folds), 0 if choose else N_REFITS
    folds += [Fold(learned, [])] * n_refits
    if time_limit is not None:  # what comes after training takes time, too
        time_limit -= min(time_limit / 2, LOOKS_AFTER * len(candidates) * _time_of_look(sets))
    enough = None if choose else _explained_by_shares(sets)
    fitted = _fit_candidates(candidates, X, folds, seed, time_limit, n_judged=n_folds, enough=enough)
    models = [one.trained.models[one.best] for fits in fitted.values() for one in fits]
    sets = [one.to("cpu") for one in sets]
    rows, members = torch.cat([one.groups.members for one in sets]).unique(return_inverse=True)
    members_of_sets = members.split([len(one.groups.members) for one in sets])
    log_probs = [model.log_probs(X[rows]) for model in models]  # (rows, classes) of each
    scores = [max(one.scores) for fits in fitted.values() for one in fits]
    best = log_probs[int(np.nanargmax(scores))].exp()
    orders = [align(best, own.exp()) for own in log_probs]
    log_probs = [own[:, torch.from_numpy(order)] for own, order in zip(log_probs, orders, strict=True)]

    judged = [place for place, own in enumerate(numbers) if own.min() >= 0]
    judges = [sets[place] for place in judged]
    quick = [one.for_training() for one in judges]  # what is searched for is looked at many times
    # For each of their memberships, the fold that leaves it out, and its place among the rows.
    where = [(fold_of_members(sets[place], numbers[place]), members_of_sets[place]) for place in judged]
    by_candidate = [torch.stack(log_probs[n : n + n_folds]) for n in range(0, len(models), len(folds))]
    # A candidate that is too sure of itself may still be the one that tells classes apart best.
    temperatures = [
        fit_temperature(quick, [by_fold[own] for own in where]) if choose else 1.0 for by_fold in by_candidate
    ]
    by_candidate = [temper(by_fold, own) for by_fold, own in zip(by_candidate, temperatures, strict=True)]
    left_out = [[by_fold[own] for own in where] for by_fold in by_candidate]
    weights = fit_mixture(quick, left_out) if choose else [1 / len(left_out)] * len(left_out)
    mixed = mix(by_candidate, weights)
    one_model = max(weights) == 1  # has its temperature
    temperature = 1.0 if one_model or not choose else fit_temperature(quick, [mixed[own] for own in where])
    tempered = temper(mixed, temperature)
    out_of_fold = [OutOfFold(tempered[own], tempered[:, own[1]]) for own in where]
    of_folds = [(1.0 if choose else 1 - SHARE_OF_REFITS) / n_folds] * n_folds + [SHARE_OF_REFITS / N_REFITS] * n_refits
    shares = [weight * own for weight in weights for own in of_folds]
    kept = [place for place, share in enumerate(shares) if share]
    return CrossFitted(
        models=[models[place] for place in kept],
        names=[[*fitted][place // len(folds)] for place in kept],
        weights=[shares[place] for place in kept],
        orders=[orders[place] for place in kept],
        folds=[min(place % len(folds), n_folds) for place in kept],
        temperatures=[temperatures[place // len(folds)] for place in kept],
        temperature=temperature,
        numbers=numbers,
        out_of_fold=dict(zip(judged, out_of_fold, strict=True)),
        candidates=[
            {"model": name, "score": mean_log_likelihood(judges, own), "weight": weight}
            for name, own, weight in zip(fitted, left_out, weights, strict=True)
        ],
        fitted=fitted,
        accuracy=None if are_too_few(judges) else estimate_accuracy(judges, [own.log_probs for own in out_of_fold]),
    )


def _fit_candidates(
    candidates: Mapping[str, Family],
    X: Tensor,
    folds: Sequence[Fold],
    seed: int,
    time_limit: float | None,
    *,
    n_judged: int,
    enough: float | None,
) -> dict[str, list[Fitted]]:
    """Fit all candidates in turn, or those alone that begin with clusters, if these are good enough.

    Parameters
    ----------
    candidates, X, folds, seed, time_limit
        Those of :func:`cross_fit`, with the folds that learn from all groups.
    n_judged
        How many folds have left-out groups, the first ones.
    enough
        A log-likelihood per left-out group. None: the best one so far is a goal for the others.
    """
    begun, fitted = time.monotonic(), dict[str, list[Fitted]]()
    goals: list[float] | None = None  # of each fold, by the best candidate so far
    scaling: ScalingName | None = None  # that the first networks have chosen
    for done, name in enumerate(in_order(candidates)):
        left = None if time_limit is None else max(time_limit - (time.monotonic() - begun), 0.0)
        share = None if left is None else left / min(len(candidates) - done, 2)
        family = candidates[name]
        if isinstance(family, Networks):
            if scaling in family.scalings:
                family = replace(family, scalings=[one for one in family.scalings if one == scaling])
            fitted[name] = _with_one_scaling(fit_folds(family, X, folds, seed, share, goals=goals))
            scaling = fitted[name][0].scalings[0]
        else:
            fitted[name] = fit_folds(family, X, folds, seed, share, goals=goals)
        scores = [one.scores[one.best] for one in fitted[name][:n_judged]]
        if enough is None and np.mean(scores) > (-np.inf if goals is None else np.mean(goals)):
            goals = scores
        if enough is not None and name == CLUSTERS and np.mean(scores) > enough:
            break
    return {name: fitted[name] for name in candidates if name in fitted}


def _explained_by_shares(sets: Sequence[Observations]) -> float:
    """Return the log-likelihood per group, if every row has the shares of the classes."""
    sets = [one.to("cpu") for one in sets]
    return mean_over_sets(sets, best_constant(sets)[1])


def _time_of_look(sets: Sequence[Observations]) -> float:
    """Return how many seconds the likelihood of all groups takes, the second time."""
    random = torch.Generator().manual_seed(0)  # rows that are alike may take less
    sizes = [(len(one.groups.members), one.n_classes) for one in sets]
    log_probs = [torch.randn(size, dtype=torch.float64, generator=random).log_softmax(1) for size in sizes]
    quick = [one.to("cpu").for_training() for one in sets]
    for _ in range(2):
        begun = time.monotonic()
        mean_log_likelihood(quick, log_probs)
    return time.monotonic() - begun


def _with_one_scaling(fits: Sequence[Fitted]) -> list[Fitted]:
    """Leave one scaling for all folds, whose models are averaged: the first, unless another is better beyond chance.

    That is, by more than the standard error of the difference over folds. One that diverged in a fold is left out.
    """
    scalings = [*dict.fromkeys(fits[0].scalings)]
    scores = {
        scaling: np.array([np.nan_to_num(one.of_scaling(scaling).scores, nan=-np.inf).max() for one in fits])
        for scaling in scalings
    }
    best, *others = [scaling for scaling in scalings if np.isfinite(scores[scaling]).all()] or scalings[:1]
    for other in others:
        gains = scores[other] - scores[best]
        if gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)):
            best = other
    return [one.of_scaling(best) for one in fits]


def fit_folds(
    family: Family,
    X: Tensor,
    folds: Sequence[Fold],
    seed: int,
    time_limit: float | None = None,
    *,
    goals: Sequence[float] | None = None,
) -> list[Fitted]:
    """Fit a family once for each fold, within so many seconds; networks learn side by side, others on the processor.

    Learning ends where the score that another family has reached in a fold, or on average over all, is out of reach.
    """
    if isinstance(family, Networks | ComponentNetworks):
        return family.fit_folds(X, folds, seed, time_limit, goal=None if goals is None else float(np.mean(goals)))
    X, folds = X.cpu(), [fold.to("cpu") for fold in folds]
    share = None if time_limit is None else time_limit / len(folds)
    return [
        family.fit(X, fold.used, fold.held_out, seed + place, share, goal=None if goals is None else goals[place])
        for place, fold in enumerate(folds)
    ]
