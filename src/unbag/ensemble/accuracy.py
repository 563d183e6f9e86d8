"""Estimate of accuracy without labels, from out-of-fold predictions and the observations of their groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from unbag.ensemble.mixture import Mixture
from unbag.learners import Problem
from unbag.training import Observations

MIN_GROUPS = 11
"""With fewer held-out groups there is no estimate: with 6 groups of 256, 58 % were estimated where 83 % were right."""
LOG_SHARPNESS = (0.0, -0.2, 0.2, -0.5, 0.5, -1.0, 1.0)
"""Logarithms of inverse temperatures, beyond those of the mixture, at which groups are evaluated."""
STD_OF_LOG_SHARPNESS = 0.5
N_RESAMPLES = 400
ERROR_OF_LOG_SHARPNESS, ERROR_PER_GROUP = 0.2, 1.0
"""Standard deviation of errors that the likelihood does not show, as of the logarithm of the inverse temperature: a
constant, and a part that decreases with the root of the number of groups. The models are never quite right."""
SHARE_OF_ROW_VARIANCE = 1.0
"""Part of the variance of the accuracy on as many labelled rows, beyond that between groups. With 0.5 and an error of
0.1, chosen on 108 simulated fits, intervals contained the accuracy in 92 % of these and in 79 % of 42 others; with 1
and 0.2, in 93 and 90 %."""
SIZE_OF_HALF = 32.0
"""Group size at which a model that has seen a group predicts new rows like its members half as well as the members."""
MIN_DIFFERENCE = 0.005
"""Difference of the two estimates from which both are given."""


@dataclass(frozen=True)
class Estimate:
    """An estimated value with its 95 % interval.

    For an accuracy it is that on new rows like those of the groups; ``new_groups`` is that on rows of new groups, where
    it is lower, because groups consist of similar rows.
    """

    value: float
    low: float
    high: float
    new_groups: Estimate | None = None


class _Counts(NamedTuple):
    """Expected numbers of right predictions in each group, at each inverse temperature."""

    log_likelihood: np.ndarray  # (temperatures, groups)
    unseen: np.ndarray  # (temperatures, groups), by the models that have not seen the group
    seen_alone: np.ndarray  # the same, of single models that have seen it
    seen_together: np.ndarray  # of their mean
    sizes: np.ndarray  # (groups,)

    def select(self, groups: np.ndarray) -> _Counts:
        return _Counts(*(np.compress(groups, values, axis=-1) for values in self))

    def interpolate(self, log_sharpness: Sequence[float], at: np.ndarray) -> _Counts:
        """Return the values at further temperatures, of which there may be one alone."""
        if len(log_sharpness) == 1:
            return self
        order = np.argsort(log_sharpness)
        knots = np.array(log_sharpness)[order]
        tables = [CubicSpline(knots, table[order])(at) for table in self[:-1]]
        return _Counts._make([*tables, self.sizes])


def estimate_accuracy(
    problem: Problem,
    mixture: Mixture,
    by_fold: Sequence[Tensor],
    folds: Tensor,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Estimate | None:
    """Estimate how often the most likely class of a new row is the right one.

    The probability that a prediction is right is the posterior probability of the predicted class given the observation
    of the row's group, by models that have not seen the group. To this is added what the mean of several models gains
    over single ones, and, for large groups, what models gain by having seen the group, which holds for new rows that
    are like its members.

    The interval is a bootstrap over groups, in which the temperature is fitted again, with a part for errors of the
    models that held-out groups do not show.

    Parameters
    ----------
    problem
        Rows and observations.
    mixture
        The mixture that was fitted to them.
    by_fold
        For each fold, the log-probabilities of all rows by its models.
    folds
        The fold that predicts each membership, -1 where none does. Rows that other folds predict in other groups were
        seen in training, and do not count.
    time_is_up
        Ends the search for the temperature.

    Returns
    -------
    Estimate or None
        None where fewer than :data:`MIN_GROUPS` groups with unseen rows were held out.
    """
    judged = problem.unroll(mixture.out_of_fold.isfinite().all(1))
    if judged is None:
        return None
    counted = find_unseen(problem, folds)[judged.rows]
    members = problem.members[judged.rows]
    log_probs = torch.stack([rows[members] for rows in by_fold])
    chosen = _Predictions.of(mixture.out_of_fold[judged.rows], log_probs, folds[judged.rows])
    tables: list[list[np.ndarray]] = []
    for value in LOG_SHARPNESS:
        tables.append(_count(judged, chosen, counted, value))
        if time_is_up():
            break
    used = LOG_SHARPNESS[: len(tables)]
    if len(used) < len(LOG_SHARPNESS):  # few temperatures, and perhaps on one side
        used, tables = used[:1], tables[:1]
    sizes = torch.cat([_weigh(s, counted) for s in judged.sets]).numpy()
    log_likelihood, unseen, alone, together = (np.stack(parts) for parts in zip(*tables, strict=True))
    counts = _Counts(log_likelihood, unseen, alone, together, sizes)
    defined = np.isfinite(counts.unseen[0]) & (sizes > 0)
    if defined.sum() < MIN_GROUPS:
        return None
    repeats = int(counted.sum()) / len(members[counted].unique())
    return _summarise(counts.select(defined), used, len(by_fold), judged.mean_group_size, repeats)


@dataclass(frozen=True)
class _Predictions:
    """Predicted classes of memberships."""

    out_of_fold: Tensor  # (memberships, classes), log-probabilities
    unseen: Tensor  # (memberships,)
    seen_together: Tensor
    seen_alone: Tensor  # (folds, memberships), by each model
    weights: Tensor  # (folds, memberships), whether the model has seen the group, divided by the number that have

    @classmethod
    def of(cls, out_of_fold: Tensor, by_fold: Tensor, folds: Tensor) -> _Predictions:
        seen = torch.arange(len(by_fold))[:, None] != folds
        weights = seen.double() / seen.sum(0).clamp_min(1)
        together = (by_fold.exp() * weights[:, :, None]).sum(0).argmax(1)
        return cls(out_of_fold.double(), out_of_fold.argmax(1), together, by_fold.argmax(2), weights)


def _weigh(s: Observations, values: Tensor) -> Tensor:
    """Sum values of memberships in each group, times the weight of the group."""
    return s.weight * s.weights * s.groups.segments.sum(values[s.groups.members].double())


def _count(judged: Problem, chosen: _Predictions, counted: Tensor, log_sharpness: float) -> list[np.ndarray]:
    """Return the log-likelihood of each group, and expected numbers of right predictions, at a temperature."""
    outputs = (chosen.out_of_fold * math.exp(log_sharpness)).log_softmax(1)
    parts: list[list[Tensor]] = []
    for s in judged.sets:
        members = s.groups.members
        evidence = s.aggregate.checked_evidence(outputs[members], s.groups.segments, s.checked)
        posterior = torch.full_like(outputs, math.nan)
        posterior[members] = evidence.posterior.double()
        unseen, together = (posterior.gather(1, c[:, None])[:, 0] for c in (chosen.unseen, chosen.seen_together))
        alone = (posterior.gather(1, chosen.seen_alone.T) * chosen.weights.T).sum(1)
        log_likelihood = s.weight * s.weights * evidence.log_likelihood.double()
        parts.append([log_likelihood, *(_weigh(s, v * counted) for v in (unseen, alone, together))])
    return [torch.cat(values).numpy() for values in zip(*parts, strict=True)]


def _summarise(
    counts: _Counts, log_sharpness: Sequence[float], n_folds: int, group_size: float, repeats: float
) -> Estimate:
    """Return the estimate and its interval from the numbers of groups."""
    n = len(counts.sizes)
    grid = np.linspace(min(log_sharpness), max(log_sharpness), 41 if len(log_sharpness) > 1 else 1)
    counts = counts.interpolate(log_sharpness, grid)
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), N_RESAMPLES)
    drawn = np.concatenate([np.ones((1, n)), drawn])  # the first is the sample itself
    score = drawn @ counts.log_likelihood.T - 0.5 * (grid / STD_OF_LOG_SHARPNESS) ** 2
    weights = np.exp(score - score.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    sizes = drawn @ counts.sizes
    tables = (counts.unseen, counts.seen_alone, counts.seen_together)
    unseen, alone, together = ((weights * (drawn @ table.T)).sum(1) / sizes for table in tables)
    gain = (together - alone) * (1 - 1 / n_folds) / (1 - 1 / (n_folds - 1)) if n_folds > 2 else 0 * unseen
    share = group_size**2 / (group_size**2 + SIZE_OF_HALF**2)
    shift = share * np.maximum(together - unseen, 0) if n_folds > 1 else 0 * unseen
    by_sharpness = counts.unseen.sum(1) / counts.sizes.sum()
    slope = float(weights[0] @ np.gradient(by_sharpness, grid)) if len(grid) > 1 else 0.0
    error = slope * math.hypot(ERROR_OF_LOG_SHARPNESS, ERROR_PER_GROUP / math.sqrt(n))

    def summarise(values: np.ndarray, doubt: float) -> Estimate:
        value = float(values[0].clip(0, 1))
        of_rows = SHARE_OF_ROW_VARIANCE * value * (1 - value) * repeats / counts.sizes.sum()
        variance = repeats * values[1:].var() + of_rows + error**2 + doubt**2
        half = 1.96 * math.sqrt(variance)
        return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))

    new, like = summarise(unseen + gain, 0.0), summarise(unseen + gain + shift, 0.5 * float(shift[0]))
    return replace(like, new_groups=new) if like.value - new.value >= MIN_DIFFERENCE else like


def find_unseen(problem: Problem, folds: Tensor) -> Tensor:
    """Return a flag for each membership whose row is in no group that another fold holds out."""
    predicted = folds >= 0
    members, of_members = problem.members[predicted], folds[predicted]
    n = len(problem.rows)
    first = torch.full((n,), len(folds)).scatter_reduce_(0, members, of_members, "amin")
    last = torch.full((n,), -1).scatter_reduce_(0, members, of_members, "amax")
    return (first == last)[problem.members]
