"""Stacking: weights and temperatures of candidates that maximise the held-out likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from unbag.data.labels import Categorical
from unbag.data.row_source import Rows
from unbag.ensemble.jobs import Align, Candidate, Schedule
from unbag.ensemble.scheduler import fit_candidates
from unbag.learners import Problem

PRIOR_GROUPS = 3.0
"""Pseudo-groups for each candidate: with few groups, weights stay almost equal. In six cells with 6 to 28 groups, log
loss of the test rows is .711, with 1 pseudo-group .718, and accuracy 0.4 points higher."""
SHARPNESS_STD = 0.5
"""Standard deviation of the prior of the logarithm of each inverse temperature."""
MAX_LOG_SHARPNESS = 1.5
MAX_LOG_CORRECTION = 1.0
N_BISECTIONS = 12
MIN_WEIGHT = 0.02
"""Candidates with a smaller weight are dropped: they cost time at prediction and change nothing."""
MAX_ITERATIONS = 40
MIN_RELATIVE_DECREASE = 1e-6


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted mean of the tempered predictions of candidates."""

    labels: Categorical
    candidates: list[Candidate]
    weights: Tensor  # (candidates,), sum to one
    fold_sharpness: Tensor  # (candidates,), inverse temperatures of the models of single folds
    sharpness: Tensor  # (candidates,), of the mean over folds
    out_of_fold: Tensor
    """Log-probabilities of each membership by models that did not see its group, shape ``(memberships, outputs)``."""
    score: float
    """Mean held-out log-likelihood per group."""

    def log_probs(self, X: Rows) -> Tensor:
        """Return the log-probabilities of new rows, shape ``(rows, classes)``."""
        return self.mix(torch.stack([c.outputs(X) for c in self.candidates]))

    @property
    def n_folds(self) -> int:
        """Return the number of models of each candidate."""
        return len(self.candidates[0].models)

    def fold_log_probs(self, X: Rows, fold: int) -> Tensor:
        """Return the log-probabilities by the models of one fold alone, shape ``(rows, classes)``."""
        outputs = torch.stack([c.fold_outputs(X, fold) for c in self.candidates])
        return self.labels.mix(outputs, self.weights.log(), self.fold_sharpness)

    def mix(self, outputs: Tensor) -> Tensor:
        """Return the log-probabilities of the mixture from the outputs of all candidates, stacked."""
        return self.labels.mix(outputs, self.weights.log(), self.sharpness)

    def calibrate(self, X: Rows, accuracy: float) -> Mixture:
        """Return a mixture whose mean confidence in some rows is its estimated accuracy.

        Temperatures are fitted to models of single folds. Their mean is more accurate and less confident.
        """
        outputs = torch.stack([c.outputs(X) for c in self.candidates])

        def confidence(log_factor: float) -> float:
            mixed = replace(self, sharpness=self.fold_sharpness * math.exp(log_factor)).mix(outputs)
            return float(mixed.amax(1).double().exp().mean())

        low, high = -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION
        for _ in range(N_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if confidence(middle) < accuracy else (low, middle)
        return replace(self, sharpness=self.fold_sharpness * math.exp((low + high) / 2))


def fit_ensemble(
    problem: Problem,
    schedule: Schedule,
    align: Align | None = None,
    further: Sequence[Candidate] = (),
) -> Mixture:
    """Fit all candidates of a schedule, and mix them with further ones that were fitted elsewhere."""
    candidates = fit_candidates(problem, schedule, align)
    return fit_mixture([*further, *candidates], problem, schedule.is_over)


def fit_mixture(
    candidates: Sequence[Candidate], problem: Problem, time_is_up: Callable[[], bool] = lambda: False
) -> Mixture:
    """Maximise the held-out likelihood under a Dirichlet prior on weights and a normal one on log temperatures.

    Groups with a membership that no fold predicts are not used. ``time_is_up`` ends the search with its next step.
    """
    labels = problem.labels
    judged = problem.unroll(candidates[0].out_of_fold.isfinite().all(1))
    if judged is None:  # nothing was held out
        weights = torch.full((len(candidates),), 1 / len(candidates))
        missing, ones = candidates[0].out_of_fold, torch.ones(len(candidates))
        return Mixture(labels, list(candidates), weights, ones, ones, missing, float("nan"))
    outputs = torch.stack([labels.log_probs(c.out_of_fold[judged.rows]) for c in candidates])
    n = len(candidates)
    group_weights = judged.group_weights

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(values).requires_grad_()
        log_weights, log_sharpness = parameters[:n].log_softmax(0), parameters[n:]
        mixed = labels.mix(outputs, log_weights.float(), log_sharpness.exp().float())
        prior = PRIOR_GROUPS * log_weights.sum() - 0.5 * (log_sharpness / SHARPNESS_STD).square().sum()
        value = -(judged.log_likelihood(mixed[None])[0].double() @ group_weights + prior) / group_weights.sum()
        value.backward()
        return value.item(), parameters.grad.numpy()  # type: ignore[union-attr]

    def stop(values: np.ndarray) -> None:
        if time_is_up():
            raise StopIteration

    bounds = [(-10.0, 10.0)] * n + [(-MAX_LOG_SHARPNESS, MAX_LOG_SHARPNESS)] * n
    options = {"maxiter": MAX_ITERATIONS, "ftol": MIN_RELATIVE_DECREASE}
    found = minimize(loss, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=stop)
    weights = torch.from_numpy(found.x[:n]).softmax(0).float()
    kept = (weights >= min(MIN_WEIGHT, float(weights.max()))).nonzero().flatten()
    weights = weights[kept] / weights[kept].sum()
    sharpness = torch.from_numpy(found.x[n:]).exp().float()[kept]
    out_of_fold = torch.full_like(candidates[0].out_of_fold, float("nan"))
    mixed = labels.mix(outputs[kept], weights.log(), sharpness)
    out_of_fold[judged.rows] = mixed
    chosen = [candidates[k] for k in kept.tolist()]
    return Mixture(labels, chosen, weights, sharpness, sharpness, out_of_fold, judged.score(mixed))
