"""Estimates by class, without labels: sensitivity, precision and AUC from out-of-fold posterior probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unbag.ensemble.accuracy import MIN_GROUPS, Estimate, find_unseen
from unbag.learners import Problem

N_RESAMPLES = 100
"""Bootstrap samples of groups."""
MAX_ROWS, MAX_NUMBERS = 10_000, 2**18
"""Rows, and probabilities of all classes, that are evaluated; of more, an even sample of groups."""
DOMINANT = 0.9
"""Share of a class from which on accuracy says little: predicting that class for every row is as accurate."""


@dataclass(frozen=True)
class ClassPerformance:
    """Estimates for one class against all others; None where the model predicts it for no row, or it does not occur."""

    share: float
    """Expected share of the rows."""
    predicted: float
    """Share of the rows of which it is the most likely class."""
    sensitivity: Estimate | None
    precision: Estimate | None
    auc: Estimate | None


@dataclass(frozen=True)
class Performance:
    """Estimated performance on rows of new groups.

    The 95 % intervals cover the choice of groups, and assume that the predicted probabilities are right.
    """

    log_loss: Estimate
    classes: tuple[ClassPerformance, ...]

    def reorder(self, order: Sequence[int]) -> Performance:
        """Return the estimates with classes in another order."""
        return Performance(self.log_loss, tuple(self.classes[place] for place in order))


def estimate_performance(problem: Problem, out_of_fold: Tensor, folds: Tensor) -> Performance | None:
    """Estimate the log loss, and sensitivity, precision and AUC by class.

    The label of a row is unknown; its posterior probabilities given the observation of its group take its place.
    Arguments are those of :func:`unbag.ensemble.estimate_accuracy`, and None is returned in the same cases.
    """
    judged = problem.unroll(out_of_fold.isfinite().all(1))
    if judged is None:
        return None
    unseen, parts, first = find_unseen(problem, folds)[judged.rows], [], 0
    for whole in judged.sets:
        n = len(whole.groups)
        at_most = min(MAX_ROWS, MAX_NUMBERS // whole.n_classes) // len(judged.sets)
        n_taken = min(n, max(MIN_GROUPS, n * at_most // len(whole.groups.members)))
        s = whole.take(torch.linspace(0, n - 1, n_taken).long())
        log_probs = out_of_fold[judged.rows[s.groups.members]].double()
        posterior = s.aggregate.checked_evidence(log_probs, s.groups.segments, s.checked).posterior.double()
        weights = s.groups.segments.expand(s.weight * s.weights) * unseen[s.groups.members]
        parts.append((log_probs, posterior, weights, s.groups.segments.index + first))
        first += len(s.groups)
    log_probs, posterior, weights, group = (torch.cat(values) for values in zip(*parts, strict=True))
    used = posterior.isfinite().all(1) & (weights > 0)
    number = np.unique(group[used].numpy(), return_inverse=True)[1]
    if len(number) == 0 or number.max() + 1 < MIN_GROUPS:
        return None
    return _summarise(log_probs[used].numpy(), posterior[used].numpy(), weights[used].numpy(), number)


def _summarise(log_probs: np.ndarray, posterior: np.ndarray, weights: np.ndarray, group: np.ndarray) -> Performance:
    n_groups, k = group.max() + 1, log_probs.shape[1]
    drawn = np.random.default_rng(0).multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_RESAMPLES)
    drawn = np.concatenate([np.ones((1, n_groups)), drawn])  # the first is the sample itself
    called = np.eye(k)[log_probs.argmax(1)]

    def total(values: np.ndarray) -> np.ndarray:
        """Return weighted sums over rows in each sample."""
        return drawn @ np.stack([np.bincount(group, weights * column, n_groups) for column in values.T], 1)

    # A posterior of zero times a logarithm of minus infinity is zero.
    losses = -np.where(posterior > 0, posterior * log_probs, 0).sum(1, keepdims=True)
    size = total(np.ones((len(group), 1)))
    hits, of_class, of_calls = map(total, (called * posterior, posterior, called))
    by_row = weights * drawn[:, group]  # (samples, rows)
    classes = tuple(
        ClassPerformance(
            float(of_class[0, j] / size[0, 0]),
            float(of_calls[0, j] / size[0, 0]),
            _interval(hits[:, j], of_class[:, j]),
            _interval(hits[:, j], of_calls[:, j]),
            _interval(*_count_pairs(log_probs[:, j], posterior[:, j], by_row)),
        )
        for j in range(k)
    )
    log_loss = _interval(total(losses)[:, 0], size[:, 0])
    assert log_loss is not None
    return Performance(log_loss, classes)


def _count_pairs(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of pairs in the right order, and of all pairs of a positive and a negative row, (samples,)."""
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf) > 0)
    starts = np.union1d([0], starts)
    yes, no = (np.add.reduceat(weights[:, order] * part[order], starts, axis=1) for part in (positive, 1 - positive))
    below = no.cumsum(1) - no / 2  # equal scores count half
    return (yes * below).sum(1), yes.sum(1) * no.sum(1)


def _interval(part: np.ndarray, whole: np.ndarray) -> Estimate | None:
    """Return the ratio in the first sample, and its 95 % interval over the others; None where it is not defined."""
    if whole[0] <= 0:
        return None
    ratios = part[whole > 0] / whole[whole > 0]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Estimate(float(ratios[0]), float(min(low, ratios[0])), float(max(high, ratios[0])))
