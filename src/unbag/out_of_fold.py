"""Out-of-fold predictions: how well they explain their groups, mixture weights, a temperature, expected accuracy.

Every group was left out of training once. Predictions are log-probabilities of the classes, one tensor for each set of
observations with one row per membership, each by a model that has not seen the group. None of this needs a label of any
instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from unbag.training import Observations

# Inverse temperatures are searched between 1/20 and 20, at first in steps of a factor of about 2, and then to 1 %.
LARGEST_LOG_FACTOR = 3.0
STEPS = 4

TOO_FEW_TO_JUDGE, FEW_TO_JUDGE = 10, 40
"""So many left-out groups, or fewer, do not tell how often predictions are right, or tell it roughly."""
WIDE = 0.02
"""More than so far from the estimated accuracy to an end of its interval, it is rough as well."""

# Of a mixture: the prior, as rows that were seen to be of each candidate, which models hardly count, and steps at most.
# Two to five rows were alike on tables of vehicle, breast_cancer and digits, and better than none.
PRIOR, LEAST_SHARE, MOST_STEPS = 3.0, 0.1, 50


@dataclass(frozen=True)
class Estimate:
    """An estimated mean with its 95 % interval over groups."""

    value: float
    low: float
    high: float


def log_likelihoods(sets: Sequence[Observations], log_probs: Sequence[Tensor]) -> list[Tensor]:
    """Return the log-likelihood of each group of each set."""
    return [
        one.aggregate.checked_evidence(own, one.groups.segments, one.checked).log_likelihood
        for one, own in zip(sets, log_probs, strict=True)
    ]


def mean_log_likelihood(sets: Sequence[Observations], log_probs: Sequence[Tensor]) -> float:
    """Return the mean log-likelihood per group; sets of observations count by their weights."""
    return mean_over_sets(sets, log_likelihoods(sets, log_probs))


def mean_over_sets(sets: Sequence[Observations], values: Sequence[Tensor]) -> float:
    """Return the mean of one value per group, by the weights of groups and of sets."""
    total = sum(one.weight * float(one.mean(own)) for one, own in zip(sets, values, strict=True))
    return total / sum(one.weight for one in sets)


def temper(log_probs: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature: below 1 makes predictions more certain, above 1 less."""
    return log_probs if temperature == 1 else (log_probs / temperature).log_softmax(-1)


def fit_temperature(sets: Sequence[Observations], log_probs: Sequence[Tensor]) -> float:
    """Return the temperature under which predictions explain their groups best.

    The likelihood of counts can have several peaks: the best point of a grid is refined.
    """

    def loss(log_factor: float) -> float:
        factor = float(torch.tensor(log_factor, dtype=torch.float64).exp())
        value = -mean_log_likelihood(sets, [temper(own, 1 / factor) for own in log_probs])
        return torch.inf if isnan(value) else value  # no result is the worst

    grid = torch.linspace(-LARGEST_LOG_FACTOR, LARGEST_LOG_FACTOR, 2 * STEPS + 1, dtype=torch.float64)
    losses = torch.tensor([loss(float(one)) for one in grid], dtype=torch.float64)
    best = int(losses.argmin())
    around = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    refined = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-2})
    log_factor = refined.x if refined.fun < losses[best] else float(grid[best])
    return float(torch.tensor(-log_factor, dtype=torch.float64).exp())


def mix(log_probs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the logarithm of the weighted mean of probabilities; weights add up to one."""
    used = [place for place, weight in enumerate(weights) if weight]
    log_probs, weights = [log_probs[place] for place in used], [weights[place] for place in used]
    shares = torch.tensor(weights, dtype=log_probs[0].dtype, device=log_probs[0].device).log()
    stacked = torch.stack(list(log_probs)) + shares.view(-1, *[1] * log_probs[0].ndim)
    return stacked.logsumexp(0)


def fit_mixture(sets: Sequence[Observations], candidates: Sequence[Sequence[Tensor]]) -> list[float]:
    """Return the weight of each candidate in a mixture that explains groups: stacking of predictive distributions.

    What is maximised over the weights is the log-likelihood of all groups under the mixture (Yao et al., 2018), plus
    the logarithm of a Dirichlet prior, under which candidates count alike until groups tell them apart; labels of rows
    need none, because they tell what is wanted. A model which hardly counts is left out, and one whose predictions are
    not defined.

    Parameters
    ----------
    sets
        What was observed.
    candidates
        For each candidate, the log-probabilities of the members of each set.
    """
    defined = [place for place, own in enumerate(candidates) if not any(bool(one.isnan().any()) for one in own)]
    defined = defined or [0]
    stacked = [torch.stack([candidates[place][n] for place in defined]) for n in range(len(sets))]
    prior = PRIOR if any(one.groups.max_size > 1 for one in sets) else 0.0
    n_groups = sum(len(one.groups) for one in sets)
    total = sum(one.weight for one in sets)
    counts = [n_groups * one.weight / total * one.weights / one.weights.sum() for one in sets]  # add up to n_groups

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        log_weights = torch.from_numpy(logits).log_softmax(0)
        value, gradient = prior * log_weights.sum(), prior * (1 - len(logits) * log_weights.exp())
        for one, own, count in zip(sets, stacked, counts, strict=True):
            segments, joint = one.groups.segments, own + log_weights[:, None, None]  # (candidates, members, classes)
            mixed = joint.logsumexp(0)
            evidence = one.aggregate.checked_evidence(mixed, segments, one.checked)
            # Of which candidate a member is, if its class is that of the posterior.
            of_candidate = ((joint - mixed).exp().nan_to_num() * evidence.posterior).sum(2)  # (candidates, members)
            value += count @ evidence.log_likelihood.double()
            gradient += (of_candidate - log_weights.exp()[:, None]) @ segments.expand(count)
        return -float(value), -gradient.numpy()

    found = minimize(loss, np.zeros(len(defined)), jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
    shares = torch.from_numpy(found.x).softmax(0)
    shares = shares * (shares >= LEAST_SHARE)
    weights = torch.zeros(len(candidates), dtype=torch.float64)
    weights[defined] = shares / shares.sum()
    return weights.tolist()


def are_too_few(sets: Sequence[Observations]) -> bool:
    """Whether left-out groups are too few to tell how often predictions are right."""
    return sum(len(one.groups) for one in sets) <= TOO_FEW_TO_JUDGE


def estimate_accuracy(sets: Sequence[Observations], log_probs: Sequence[Tensor], n_guessed: int = 0) -> Estimate:
    """Estimate how often the most likely class is the right one, from what was observed of the groups.

    The chance that a prediction is right is the posterior of the predicted class given the observation of its group:
    where groups are small this hardly depends on the model, for groups of one it is the accuracy itself, and where they
    say little it is the confidence of the model, which :func:`fit_temperature` should have set right. A member
    counts by the weights of its group and of its set.

    Parameters
    ----------
    sets
        What was observed.
    log_probs
        Out-of-fold predictions for the members of each set.
    n_guessed
        Members of one more group whose classes were guessed, so that a few groups which are all explained do not make
        an accuracy of 100 % (for two classes and two members, Laplace's rule of succession).
    """
    chances, sizes = [], []
    for one, own in zip(sets, log_probs, strict=True):
        segments = one.groups.segments
        posterior = one.aggregate.checked_evidence(own, segments, one.checked).posterior
        right = posterior.gather(1, own.argmax(1, keepdim=True))[:, 0]
        weights = one.weight * one.weights
        chances.append(weights * segments.sum(right.double()))
        sizes.append(weights * segments.sizes)
    if n_guessed:
        size = n_guessed * torch.cat(sizes).sum() / sum(len(one.groups.members) for one in sets)
        chances.append(size[None] / sets[0].n_classes)
        sizes.append(size[None])
    return _ratio(torch.cat(chances), torch.cat(sizes))


def _ratio(totals: Tensor, sizes: Tensor) -> Estimate:
    """Return the mean over members with its interval, where members of one group do not vary independently."""
    value = totals.sum() / sizes.sum()
    residuals = totals - value * sizes
    n = len(totals)
    error = (residuals.square().sum() * n / max(n - 1, 1)).sqrt() / sizes.sum()
    half = 1.96 * float(error)
    return Estimate(float(value), max(float(value) - half, 0.0), min(float(value) + half, 1.0))
