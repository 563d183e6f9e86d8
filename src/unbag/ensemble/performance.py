"""Estimates by class, without labels: sensitivity, precision and AUC from out-of-fold posterior probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unbag.ensemble.accuracy import Estimate, HeldOut, binomial_variance

DOMINANT = 0.9
"""Share of a class from which on accuracy says little: predicting that class for every row is as accurate."""


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


def estimate_performance(held_out: HeldOut | None) -> Performance | None:
    """Estimate the log loss, and sensitivity, precision and AUC by class."""
    if held_out is None:
        return None

    def log_loss(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(invalid="ignore"):  # a posterior of zero times a logarithm of minus infinity is zero
            return -(w @ np.where(p > 0, p * log_probs, 0).sum(1)), w.sum(1)

    losses = held_out.estimate(log_loss, lambda *_: 0.0, math.inf)
    assert losses is not None
    n_classes = held_out.log_probs.shape[1]
    return Performance(losses, tuple(_estimate_class(held_out, j) for j in range(n_classes)))


def _estimate_class(held_out: HeldOut, j: int) -> ClassPerformance:
    weights = held_out.samples[0]
    n, positive = float(weights.sum()), float(weights @ held_out.labels[:, j])
    of_folds = [held_out.fold == fold for fold in np.unique(held_out.fold)]

    def sensitivity(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return w @ ((log_probs.argmax(1) == j) * p[:, j]), w @ p[:, j]

    def precision(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        called = log_probs.argmax(1) == j
        return w @ (called * p[:, j]), w @ called

    def auc(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Models of different folds may differ in their intercepts: only rows of one fold are compared.
        pairs = [_count_pairs(log_probs[inside, j], p[inside, j], w[:, inside]) for inside in of_folds]
        right, both = np.sum(pairs, axis=0)
        return right, both

    return ClassPerformance(
        positive / n,
        float(weights @ (held_out.log_probs.argmax(1) == j) / n),
        held_out.estimate(sensitivity, binomial_variance),
        held_out.estimate(precision, binomial_variance),
        held_out.estimate(auc, lambda value, _: _variance_of_auc(value, positive, n - positive)),
    )


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
