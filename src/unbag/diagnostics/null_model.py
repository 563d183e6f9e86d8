"""The null model: the class distribution, the same for every row, with the largest likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unbag.aggregates.observations import Observations

N_STARTS = 4
"""A search for a distribution whose classes are unnamed may end at a saddle point where all of them are alike."""
MAX_LOGIT = 30.0
"""Logits stay finite where a class should be ruled out; exp(-30) is as good as nothing."""
TOLERANCE = 1e-9
"""Relative improvement of the log-likelihood below which the search ends."""


Cases = tuple[Observations, Tensor, Tensor]
"""One group of each distinct case, the case of each group, and the share of each case in the weights of all groups."""


def _find_cases(s: Observations) -> Cases:
    """Find the distinct cases of a set: if all rows are alike, only size and observation matter."""
    n = len(s.groups)
    table = torch.cat([s.groups.sizes[:, None].double(), s.checked.reshape(n, -1).double()], 1)
    cases, case = table.unique(dim=0, return_inverse=True)
    first = torch.full((len(cases),), n).scatter_reduce_(0, case, torch.arange(n), "amin")
    return s.take(first), case, torch.bincount(case, s.weights) / s.weights.sum()


def _log_likelihood(s: Observations, logits: Tensor) -> Tensor:
    """Return the log-likelihood of each group if every row has these logits, ``(k,)``."""
    if s.aggregate.outcome == "class_counts":  # the multinomial, whatever the sizes
        counts = s.checked.double()
        ways = torch.lgamma(counts.sum(1) + 1) - torch.lgamma(counts + 1).sum(1)
        return ways + torch.where(counts > 0, counts * logits.log_softmax(0), 0.0).sum(1)
    of_members = logits.expand(len(s.groups.members), -1)
    return s.aggregate.checked_evidence(of_members, s.groups.segments, s.checked).log_likelihood


def best_constant(sets: Sequence[Observations]) -> tuple[np.ndarray, list[Tensor]]:
    """Fit the class distribution that explains all groups best if every row has it.

    It maximises the mean over sets of the log-likelihood per group, by the weights of sets and groups. For counts it is
    the frequencies of the classes; for pairs and triplets, which class has which share is arbitrary.

    Returns the distribution, ``(k,)``, and for each set the log-likelihood of its groups under it, ``(groups,)``.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> counts = Observations(LabelProportions(), Groups.from_sizes([2, 2]), [[2, 0], [1, 1]], 2)
    >>> best_constant([counts])[0].tolist()
    [0.75, 0.25]
    """
    if all(s.aggregate.outcome == "class_counts" for s in sets):
        frequencies = torch.stack([s.weights @ s.checked.double() / s.weights.sum() for s in sets]).sum(0)
        probs = frequencies / frequencies.sum()
    else:
        probs = _search([_find_cases(s.counting().for_training()) for s in sets], sets[0].n_classes)
    return probs.numpy(), [_log_likelihood(s, probs.log())[case] for s, case, _ in map(_find_cases, sets)]


def _search(sets: Sequence[Cases], n_classes: int) -> Tensor:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    # Per member: the first step is as long as the gradient, which in large groups would lead to the bounds.
    members = sum(s.weight * share @ s.groups.sizes.to(share) for s, _, share in sets)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        logits = torch.from_numpy(values).requires_grad_()
        means = torch.stack([share @ _log_likelihood(s, logits) * s.weight for s, _, share in sets])
        total = -means.sum() / members
        (slope,) = torch.autograd.grad(total, logits)
        return total.item(), slope.numpy()

    random = np.random.default_rng(0)
    starts = [np.linspace(0, 1, n_classes), *random.normal(size=(N_STARTS - 1, n_classes))]
    bounds, options = [(-MAX_LOGIT, MAX_LOGIT)] * n_classes, {"ftol": TOLERANCE}
    results = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for start in starts]
    return torch.from_numpy(min(results, key=lambda result: result.fun).x).softmax(0)
