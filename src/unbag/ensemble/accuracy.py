"""Estimate of accuracy without labels, from out-of-fold predictions and the observations of their groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.learners import Problem

MIN_GROUPS = 11
"""With fewer held-out groups there is no estimate: with 6 groups of 256, 58 % were estimated where 83 % were right."""


@dataclass(frozen=True)
class Estimate:
    """An estimated mean with its 95 % interval over groups."""

    value: float
    low: float
    high: float


def estimate_accuracy(problem: Problem, out_of_fold: Tensor, folds: Tensor) -> Estimate | None:
    """Estimate how often the most likely class of a row of a new group is the right one.

    The probability that a prediction is right is the posterior probability of the predicted class given the observation
    of the row's group. Where groups are small this hardly depends on the model; where they say little, it is the
    confidence of the model, whose temperature was fitted to held-out groups.

    Parameters
    ----------
    problem
        Rows and observations.
    out_of_fold
        Log-probabilities of each membership by models that did not see its group, shape ``(memberships, classes)``; NaN
        where there are none.
    folds
        The fold that predicts each membership, -1 where none does. Rows that other folds predict in other groups were
        seen in training, and do not count.

    Returns
    -------
    Estimate or None
        None where fewer than :data:`MIN_GROUPS` groups with unseen rows were held out.
    """
    judged = problem.unroll(out_of_fold.isfinite().all(1))
    if judged is None:
        return None
    unseen = find_unseen(problem, folds)[judged.rows]
    sums, sizes = [], []
    for s in judged.sets:
        predicted = out_of_fold[judged.rows[s.groups.members]].double()
        posterior = s.aggregate.checked_evidence(predicted, s.groups.segments, s.checked).posterior
        correct = posterior.gather(1, predicted.argmax(1, keepdim=True))[:, 0]
        weights, counted = s.weight * s.weights, unseen[s.groups.members].double()
        sums.append(weights * s.groups.segments.sum(correct.double() * counted))
        sizes.append(weights * s.groups.segments.sum(counted))
    total, size = torch.cat(sums), torch.cat(sizes)
    defined = total.isfinite() & (size > 0)
    return _ratio(total[defined], size[defined]) if int(defined.sum()) >= MIN_GROUPS else None


def find_unseen(problem: Problem, folds: Tensor) -> Tensor:
    """Return a flag for each membership whose row is in no group that another fold holds out."""
    predicted = folds >= 0
    members, of_members = problem.members[predicted], folds[predicted]
    n = len(problem.rows)
    first = torch.full((n,), len(folds)).scatter_reduce_(0, members, of_members, "amin")
    last = torch.full((n,), -1).scatter_reduce_(0, members, of_members, "amax")
    return (first == last)[problem.members]


def _ratio(totals: Tensor, sizes: Tensor) -> Estimate:
    """Return the mean over members with an interval that treats groups as the independent units."""
    value = float(totals.sum() / sizes.sum())
    residuals = totals - value * sizes
    n = len(totals)
    half = 1.96 * float((residuals.square().sum() * n / max(n - 1, 1)).sqrt() / sizes.sum())
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))
