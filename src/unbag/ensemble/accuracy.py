"""Estimates without labels, from out-of-fold predictions and the observations of their groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unbag.learners import Problem

MIN_GROUPS = 11
"""With fewer held-out groups there is no estimate: with 6 groups of 256, 58 % were estimated where 83 % were right."""
MAX_ROWS, MAX_NUMBERS = 20_000, 2**19
"""Rows, and probabilities of all classes, that are evaluated; of more, an even sample of groups."""
LOG_SHARPNESS = np.linspace(-1, 1, 9)
"""Logarithms of inverse temperatures, beyond those of the mixture, at which groups are evaluated."""
STD_OF_LOG_SHARPNESS = 0.5
N_RESAMPLES = 100
ERROR_OF_LOG_SHARPNESS, ERROR_PER_GROUP = 0.2, 1.0
"""Standard deviation of errors that the likelihood does not show, as of the logarithm of the inverse temperature: a
constant, and a part that decreases with the root of the number of groups. The models are never quite right."""
SIZE_OF_HALF = 32.0
"""Group size at which a model that has seen a group predicts new rows like its members half as well as the members."""
MIN_DIFFERENCE = 0.005
"""Difference of the two estimates from which both are given."""

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From log-probabilities and posteriors, ``(rows, classes)``, and weights, ``(samples, rows)``, to parts of a ratio."""


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


@dataclass(frozen=True)
class HeldOut:
    """Predictions of memberships by models that have not seen their group, and what stands for their labels."""

    log_probs: np.ndarray  # (rows, classes), by the models that have not seen the group
    together: np.ndarray  # the same, by the mean of the models that have seen it
    alone: np.ndarray  # (folds, rows, classes), by each model
    seen: np.ndarray  # (folds, rows), whether the model has seen the group
    fold: np.ndarray  # (rows,), the fold that held out the group
    posterior: np.ndarray  # (temperatures, rows, classes), given the observation of the group
    log_sharpness: np.ndarray  # (temperatures,)
    chance: np.ndarray  # (temperatures,), their posterior probabilities
    samples: np.ndarray  # (samples, rows), weights in bootstrap samples of groups; the first is the sample itself
    n_groups: int
    group_size: float
    repeats: float  # memberships per row

    @classmethod
    def gather(
        cls,
        problem: Problem,
        out_of_fold: Tensor,
        by_fold: Sequence[Tensor],
        folds: Tensor,
        time_is_up: Callable[[], bool] = lambda: False,
    ) -> HeldOut | None:
        """Return None where fewer than :data:`MIN_GROUPS` groups with unseen rows were held out.

        Parameters
        ----------
        problem, out_of_fold
            Rows and observations, and the log-probabilities of memberships by models that have not seen their group.
        by_fold
            For each fold, the log-probabilities of all rows by its models.
        folds
            The fold that predicts each membership, -1 where none does. Rows that other folds predict in other groups
            were seen in training, and do not count.
        time_is_up
            Ends the evaluation of temperatures.
        """
        judged = problem.unroll(out_of_fold.isfinite().all(1))
        if judged is None:
            return None
        unseen, parts, first = find_unseen(problem, folds)[judged.rows], [], 0
        log_sharpness = np.zeros(1) if time_is_up() else LOG_SHARPNESS
        log_likelihood = np.zeros(len(log_sharpness))
        for whole in judged.sets:
            n = len(whole.groups)
            at_most = min(MAX_ROWS, MAX_NUMBERS // whole.n_classes) // len(judged.sets)
            n_taken = min(n, max(MIN_GROUPS, n * at_most // len(whole.groups.members)))
            s = whole.take(torch.linspace(0, n - 1, n_taken).long())
            rows, segments = s.groups.members, s.groups.segments
            log_probs, posteriors = out_of_fold[judged.rows[rows]].double(), []
            for place, value in enumerate(log_sharpness):
                tempered = (log_probs * math.exp(value)).log_softmax(1)
                evidence = s.aggregate.checked_evidence(tempered, segments, s.checked)
                posteriors.append(evidence.posterior.double())
                log_likelihood[place] += float(s.weight * s.weights @ evidence.log_likelihood.double()) * n / n_taken
            weights = segments.expand(s.weight * s.weights) * unseen[rows]
            parts.append((log_probs, weights, segments.index + first, rows, torch.stack(posteriors, 1)))
            first += len(s.groups)
        log_probs, weights, group, rows, posterior = (torch.cat(values) for values in zip(*parts, strict=True))
        used = posterior.isfinite().all(2).all(1) & (weights > 0)
        log_probs, weights, rows, posterior = log_probs[used], weights[used], judged.rows[rows[used]], posterior[used]
        number = np.unique(group[used].numpy(), return_inverse=True)[1]
        if len(number) == 0 or (n_groups := int(number.max()) + 1) < MIN_GROUPS:
            return None
        members, fold = problem.members[rows], folds[rows]
        alone = torch.stack([of_rows[members] for of_rows in by_fold]).double()
        seen = torch.arange(len(by_fold))[:, None] != fold
        together = ((alone.exp() * seen[:, :, None]).sum(0) / seen.sum(0).clamp_min(1)[:, None]).log()
        drawn = np.random.default_rng(0).multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_RESAMPLES)
        samples = weights.numpy() * np.concatenate([np.ones((1, n_groups)), drawn])[:, number]
        repeats = len(members) / len(members.unique())
        score = log_likelihood / repeats - 0.5 * (log_sharpness / STD_OF_LOG_SHARPNESS) ** 2
        chance = np.exp(score - score.max())
        return cls(
            log_probs.numpy(),
            together.numpy(),
            alone.numpy(),
            seen.numpy(),
            fold.numpy(),
            posterior.transpose(0, 1).numpy(),
            log_sharpness,
            chance / chance.sum(),
            samples,
            n_groups,
            judged.mean_group_size,
            repeats,
        )

    @property
    def labels(self) -> np.ndarray:
        """Return the mean posterior over temperatures, ``(rows, classes)``."""
        return np.tensordot(self.chance, self.posterior, 1)

    def ratio(self, metric: Metric, log_probs: np.ndarray, posterior: np.ndarray, weights: np.ndarray) -> float:
        """Compute a metric of predictions, with weights of rows; NaN where it is not defined."""
        part, whole = metric(log_probs, posterior, weights[None])
        return float(part[0] / whole[0]) if whole[0] > 0 else math.nan

    def estimate(
        self, metric: Metric, of_rows: Callable[[float, float], float], high: float = 1.0, shift: float = 0.0
    ) -> Estimate | None:
        """Estimate a metric; None where it is not defined.

        The posterior probabilities of labels take the place of labels. To this is added what the mean of several models
        gains over single ones, and a shift of which one half is uncertain. The interval covers the choice of groups and
        of rows, by ``of_rows``, the variance for a value and a number of rows, the temperature, and errors of the
        models that held-out groups do not show.
        """
        labels, weights, n_folds = self.labels, self.samples[0], len(self.alone)
        part, whole = metric(self.log_probs, labels, self.samples)
        if not whole[0] > 0:
            return None
        values = part[whole > 0] / whole[whole > 0]
        gain, slope = 0.0, 0.0
        if n_folds > 2:
            of_folds = [(alone, weights * seen) for alone, seen in zip(self.alone, self.seen, strict=True)]
            gains = [
                self.ratio(metric, self.together, labels, w) - self.ratio(metric, alone, labels, w)
                for alone, w in of_folds
            ]
            factor = (1 - 1 / n_folds) / (1 - 1 / (n_folds - 1))
            gain = factor * float(np.mean(gains)) if np.isfinite(gains).all() else 0.0
        by_sharpness = np.array([self.ratio(metric, self.log_probs, p, weights) for p in self.posterior])
        if len(by_sharpness) > 1:
            slope = float(self.chance @ np.gradient(by_sharpness, self.log_sharpness))
        error = slope * math.hypot(ERROR_OF_LOG_SHARPNESS, ERROR_PER_GROUP * math.sqrt(self.repeats / self.n_groups))
        variance = self.repeats * (values[1:].var() + of_rows(float(values[0]), float(whole[0])))
        variance += self.chance @ (by_sharpness - self.chance @ by_sharpness) ** 2 + error**2
        variance = max(float(variance), 0.0)  # that of a share above one by rounding is negative
        half = 1.96 * math.sqrt(variance + (0.5 * gain) ** 2 + (0.5 * shift) ** 2)
        value = min(max(float(values[0]) + gain + shift, 0.0), high)
        return Estimate(value, max(value - half, 0.0), min(value + half, high))


def estimate_accuracy(held_out: HeldOut | None) -> Estimate | None:
    """Estimate how often the most likely class of a new row is the right one.

    For large groups, what models gain by having seen a group is added for new rows that are like its members.
    """
    if held_out is None:
        return None

    def accuracy(log_probs: np.ndarray, p: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return w @ np.take_along_axis(p, log_probs.argmax(1)[:, None], 1)[:, 0], w.sum(1)

    new = held_out.estimate(accuracy, binomial_variance)
    if new is None or len(held_out.alone) < 2:
        return new
    weights, labels, squared = held_out.samples[0], held_out.labels, held_out.group_size**2
    together = held_out.ratio(accuracy, held_out.together, labels, weights)
    difference = together - held_out.ratio(accuracy, held_out.log_probs, labels, weights)
    shift = squared / (squared + SIZE_OF_HALF**2) * max(difference, 0.0)
    like = held_out.estimate(accuracy, binomial_variance, shift=shift)
    assert like is not None
    return replace(like, new_groups=new) if like.value - new.value >= MIN_DIFFERENCE else like


def binomial_variance(value: float, n: float) -> float:
    """Return the variance of a share of rows."""
    return value * (1 - value) / n


def find_unseen(problem: Problem, folds: Tensor) -> Tensor:
    """Return a flag for each membership whose row is in no group that another fold holds out."""
    predicted = folds >= 0
    members, of_members = problem.members[predicted], folds[predicted]
    n = len(problem.rows)
    first = torch.full((n,), len(folds)).scatter_reduce_(0, members, of_members, "amin")
    last = torch.full((n,), -1).scatter_reduce_(0, members, of_members, "amax")
    return (first == last)[problem.members]
