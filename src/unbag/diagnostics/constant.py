"""The trivial predictor: the same class distribution for every row, as good as such a one can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates.symmetry import find_symmetry
from unbag.training import Observations

# From one start, a search for a distribution whose classes are unnamed may end where all of them are alike.
STARTS = 4

# Logits stay finite where a class should be ruled out altogether; exp(-30) is as good as nothing.
BOUND = 30.0

# The search ends with a step that improves the log-likelihood by less than this share of it.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Distinct:
    """The different cases among the groups: if all rows are alike, size and observation are all that matters."""

    observations: Observations  # one group of each case
    case: Tensor  # (groups,), which case each group is
    share: Tensor  # (cases,), of the weights of all groups

    def log_likelihood(self, log_probs: Tensor) -> Tensor:
        """Return the log-likelihood of each case, if every row has these logits, ``(k,)``."""
        one = self.observations
        if one.aggregate.outcome == "class_counts":  # the multinomial, whatever the sizes
            counts = one.checked.double()
            ways = torch.lgamma(counts.sum(1) + 1) - torch.lgamma(counts + 1).sum(1)
            return ways + torch.where(counts > 0, counts * log_probs.log_softmax(0), 0.0).sum(1)
        of_members = log_probs.expand(len(one.groups.members), -1)
        return one.aggregate.checked_evidence(of_members, one.groups.segments, one.checked).log_likelihood


def find_distinct(one: Observations) -> Distinct:
    """Return the cases among the groups of a set.

    Examples
    --------
    >>> from unbag import Groups, MultipleInstance
    >>> bags = Observations(MultipleInstance(), Groups.from_sizes([2, 3, 2]), [1, 1, 1], 2)
    >>> find_distinct(bags).case.tolist()
    [0, 1, 0]
    """
    n = len(one.groups)
    table = torch.cat([one.groups.sizes[:, None].double(), one.checked.reshape(n, -1).double()], 1)
    cases, case = table.unique(dim=0, return_inverse=True)
    first = torch.full((len(cases),), n).scatter_reduce_(0, case, torch.arange(n), "amin")
    return Distinct(one.take(first), case, torch.bincount(case, one.weights) / one.weights.sum())


def best_constant(sets: Sequence[Observations]) -> tuple[np.ndarray, list[Tensor]]:
    """Return the class distribution that explains all groups best if every row has it.

    It maximises the mean over sets of the log-likelihood per group, by the weights of sets and groups. Counts of
    classes make it their frequencies; pairs and triplets leave open which class has which share.

    Parameters
    ----------
    sets
        What was observed.

    Returns
    -------
    tuple
        The distribution, ``(k,)``, and for each set the log-likelihood of its groups under it, ``(groups,)``.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> counts = Observations(LabelProportions(), Groups.from_sizes([2, 2]), [[2, 0], [1, 1]], 2)
    >>> best_constant([counts])[0].tolist()
    [0.75, 0.25]
    """
    probs = constant_probs(sets)
    distinct = [find_distinct(one) for one in sets]
    return probs.numpy(), [one.log_likelihood(probs.log())[one.case] for one in distinct]


def constant_probs(sets: Sequence[Observations]) -> Tensor:
    """Return the class distribution alone, ``(k,)``."""
    if all(one.aggregate.outcome == "class_counts" for one in sets):
        frequencies = torch.stack([one.weights @ one.checked.double() / one.weights.sum() for one in sets]).sum(0)
        return frequencies / frequencies.sum()
    counting = [one.counting().for_training() for one in sets]
    starts = 1 if find_symmetry(counting) == "none" else STARTS
    return _search([find_distinct(one) for one in counting], sets[0].n_classes, starts)


def _search(sets: Sequence[Distinct], n_classes: int, n_starts: int) -> Tensor:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    # Per member: the first step is as long as the gradient, which of large groups would lead to the bounds.
    members = sum(one.observations.weight * one.share @ one.observations.groups.sizes.to(one.share) for one in sets)

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        given = torch.from_numpy(logits).requires_grad_()
        means = [one.share @ one.log_likelihood(given) * one.observations.weight for one in sets]
        total = -torch.stack(means).sum() / members
        (slope,) = torch.autograd.grad(total, given)
        return total.item(), slope.numpy()

    random = np.random.default_rng(0)
    starts = [np.linspace(0, 1, n_classes), *random.normal(size=(n_starts - 1, n_classes))]
    bounds = [(-BOUND, BOUND)] * n_classes
    options = {"ftol": TOLERANCE}
    results = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for start in starts]
    return torch.from_numpy(min(results, key=lambda one: one.fun).x).softmax(0)
