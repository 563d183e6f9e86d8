"""Estimates by class, without labels: sensitivity, precision and AUC from out-of-fold posterior probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unbag.ensemble.accuracy import (
    ERROR_OF_LOG_SHARPNESS,
    ERROR_PER_GROUP,
    MIN_GROUPS,
    STD_OF_LOG_SHARPNESS,
    Estimate,
    find_unseen,
)
from unbag.learners import Problem

N_RESAMPLES = 100
"""Bootstrap samples of groups."""
MAX_ROWS, MAX_NUMBERS = 10_000, 2**18
"""Rows, and probabilities of all classes, that are evaluated; of more, an even sample of groups."""
DOMINANT = 0.9
"""Share of a class from which on accuracy says little: predicting that class for every row is as accurate."""
LOG_SHARPNESS = np.linspace(-1, 1, 9)
"""Logarithms of inverse temperatures, beyond those of the mixture, at which groups are evaluated."""
Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From log-probabilities and posteriors, ``(rows, classes)``, and weights, ``(samples, rows)``, to parts of a ratio."""


@dataclass(frozen=True)
class ClassPerformance:
    """Estimates for one class against all others; None where the model predicts it for no row, or it does not occur."""

    share: float  # expected share of the rows
    predicted: float  # share of the rows of which it is the most likely class
    sensitivity: Estimate | None
    precision: Estimate | None
    auc: Estimate | None


@dataclass(frozen=True)
class Performance:
    """Estimated performance on rows of new groups, with 95 % intervals."""

    log_loss: Estimate
    classes: tuple[ClassPerformance, ...]

    def reorder(self, order: Sequence[int]) -> Performance:
        """Return the estimates with classes in another order."""
        return Performance(self.log_loss, tuple(self.classes[place] for place in order))


@dataclass(frozen=True)
class _Rows:
    """Predictions and posterior probabilities of memberships that were held out."""

    log_probs: np.ndarray  # (rows, classes), by the models that have not seen the group
    together: np.ndarray  # the same, by the mean of the models that have seen it
    alone: np.ndarray  # (folds, rows, classes), by each model
    seen: np.ndarray  # (folds, rows), whether the model has seen the group
    posterior: np.ndarray  # (temperatures, rows, classes), given the observation of the group
    weights: np.ndarray  # (rows,)
    group: np.ndarray  # (rows,), numbers from 0
    fold: np.ndarray  # (rows,), the fold that held out the group


def estimate_performance(
    problem: Problem, out_of_fold: Tensor, by_fold: Sequence[Tensor], folds: Tensor
) -> Performance | None:
    """Estimate the log loss, and sensitivity, precision and AUC by class.

    The label of a row is unknown; its posterior probabilities given the observation of its group take its place. As for
    the accuracy, the estimate is a mean over temperatures, to which the gain of the mean of several models is added.
    The interval covers the choice of groups and rows, the temperature, and errors that held-out groups do not show.
    Arguments are those of :func:`unbag.ensemble.estimate_accuracy`, and None is returned in the same cases.
    """
    judged = problem.unroll(out_of_fold.isfinite().all(1))
    if judged is None:
        return None
    parts, first = [], 0
    unseen, members = find_unseen(problem, folds)[judged.rows], problem.members[judged.rows]
    score = -0.5 * (LOG_SHARPNESS / STD_OF_LOG_SHARPNESS) ** 2
    for whole in judged.sets:
        n = len(whole.groups)
        at_most = min(MAX_ROWS, MAX_NUMBERS // whole.n_classes) // len(judged.sets)
        n_taken = min(n, max(MIN_GROUPS, n * at_most // len(whole.groups.members)))
        s = whole.take(torch.linspace(0, n - 1, n_taken).long())
        rows, segments = s.groups.members, s.groups.segments
        log_probs, posteriors = out_of_fold[judged.rows[rows]].double(), []
        for number, value in enumerate(LOG_SHARPNESS):
            evidence = s.aggregate.checked_evidence((log_probs * math.exp(value)).log_softmax(1), segments, s.checked)
            posteriors.append(evidence.posterior.double())
            score[number] += float((s.weight * s.weights * evidence.log_likelihood.double()).sum()) * n / n_taken
        weights = segments.expand(s.weight * s.weights) * unseen[rows]
        parts.append((log_probs, torch.stack(posteriors), weights, segments.index + first, rows))
        first += len(s.groups)
    log_probs, weights, group, rows = (torch.cat([part[n] for part in parts]) for n in (0, 2, 3, 4))
    posterior = torch.cat([part[1] for part in parts], 1)
    used = posterior.isfinite().all(2).all(0) & (weights > 0)
    number = np.unique(group[used].numpy(), return_inverse=True)[1]
    if len(number) == 0 or number.max() + 1 < MIN_GROUPS:
        return None
    alone = torch.stack([log_probs_of_fold[members[rows[used]]] for log_probs_of_fold in by_fold]).double()
    fold = folds[judged.rows[rows[used]]]
    seen = torch.arange(len(by_fold))[:, None] != fold
    together = (alone.exp() * seen[:, :, None]).sum(0) / seen.sum(0).clamp_min(1)[:, None]
    arrays = (log_probs[used], together.log(), alone, seen, posterior[:, used], weights[used])
    return _summarise(_Rows(*(values.numpy() for values in arrays), number, fold.numpy()), score)


def _summarise(rows: _Rows, score: np.ndarray) -> Performance:
    n_groups, k, n_folds = rows.group.max() + 1, rows.log_probs.shape[1], len(rows.alone)
    drawn = np.random.default_rng(0).multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_RESAMPLES)
    samples = rows.weights * np.concatenate([np.ones((1, n_groups)), drawn])[:, rows.group]  # the first is the sample
    chance = np.exp(score - score.max())
    chance /= chance.sum()
    mean = np.tensordot(chance, rows.posterior, 1)  # (rows, classes)
    error = math.hypot(ERROR_OF_LOG_SHARPNESS, ERROR_PER_GROUP / math.sqrt(n_groups))
    factor = (1 - 1 / n_folds) / (1 - 1 / (n_folds - 1)) if n_folds > 2 else 0.0

    def estimate(metric: Metric, of_rows: Callable[[float, float], float], high: float = 1.0) -> Estimate | None:
        """Estimate a metric; ``of_rows`` is its variance for a value and a number of rows."""

        def ratio(log_probs: np.ndarray, posterior: np.ndarray, weights: np.ndarray) -> float:
            part, whole = metric(log_probs, posterior, weights[None])
            return float(part[0] / whole[0]) if whole[0] > 0 else math.nan

        part, whole = metric(rows.log_probs, mean, samples)
        if not whole[0] > 0:
            return None
        values = part[whole > 0] / whole[whole > 0]
        by_sharpness = np.array([ratio(rows.log_probs, posterior, samples[0]) for posterior in rows.posterior])
        slope = float(chance @ np.gradient(by_sharpness, LOG_SHARPNESS))
        gain = 0.0
        if factor:
            of_folds = [(alone, samples[0] * seen) for alone, seen in zip(rows.alone, rows.seen, strict=True)]
            gains = [ratio(rows.together, mean, w) - ratio(alone, mean, w) for alone, w in of_folds]
            gain = factor * float(np.mean(gains)) if np.isfinite(gains).all() else 0.0
        variance = values[1:].var() + chance @ (by_sharpness - chance @ by_sharpness) ** 2
        variance += (slope * error) ** 2 + of_rows(float(values[0]), float(whole[0])) + (0.5 * gain) ** 2
        value, half = min(max(float(values[0]) + gain, 0.0), high), 1.96 * math.sqrt(variance)
        return Estimate(value, max(value - half, 0.0), min(value + half, high))

    def binomial(value: float, n: float) -> float:
        return value * (1 - value) / n

    def estimate_class(j: int) -> ClassPerformance:
        def called(log_probs: np.ndarray) -> np.ndarray:
            return log_probs.argmax(1) == j

        def sensitivity(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return w @ (called(log_probs) * p[:, j]), w @ p[:, j]

        def precision(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return w @ (called(log_probs) * p[:, j]), w @ called(log_probs)

        def auc(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # Models of different folds may differ in their intercepts: only rows of one fold are compared.
            of_folds = [rows.fold == fold for fold in np.unique(rows.fold)]
            pairs = [_count_pairs(log_probs[inside, j], p[inside, j], w[:, inside]) for inside in of_folds]
            return sum(part for part, _ in pairs), sum(whole for _, whole in pairs)

        n, positive = samples[0].sum(), float(samples[0] @ mean[:, j])
        return ClassPerformance(
            positive / n,
            float(samples[0] @ called(rows.log_probs) / n),
            estimate(sensitivity, binomial),
            estimate(precision, binomial),
            estimate(auc, lambda value, _: _variance_of_auc(value, positive, n - positive)),
        )

    def log_loss(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(invalid="ignore"):  # a posterior of zero times a logarithm of minus infinity is zero
            return -(w @ np.where(p > 0, p * log_probs, 0).sum(1)), w.sum(1)

    losses = estimate(log_loss, lambda *_: 0.0, math.inf)
    assert losses is not None
    return Performance(losses, tuple(estimate_class(j) for j in range(k)))


def _variance_of_auc(auc: float, positive: float, negative: float) -> float:
    """Return the variance of an AUC over rows (Hanley and McNeil, 1982)."""
    above, below = auc / (2 - auc) - auc**2, 2 * auc**2 / (1 + auc) - auc**2
    pairs = max(positive, 1.0) * max(negative, 1.0)
    return (auc * (1 - auc) + (max(positive, 1.0) - 1) * above + (max(negative, 1.0) - 1) * below) / pairs


def _count_pairs(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of pairs in the right order, and of all pairs of a positive and a negative row, (samples,)."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    starts = np.union1d([0], starts)
    yes, no = (np.add.reduceat(weights[:, order] * part[order], starts, axis=1) for part in (positive, 1 - positive))
    below = no.cumsum(1) - no / 2  # equal scores count half
    return (yes * below).sum(1), yes.sum(1) * no.sum(1)
