"""The null model, which predicts the same for every row: where learners start, and what a model must beat."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from unbag.training import Observations

MAX_LOGIT = 30.0
"""Logits stay finite where a class should be ruled out; exp(-30) is as good as nothing."""
TOLERANCE = 1e-9
"""Relative improvement of the log-likelihood below which the search ends."""
N_STARTS = 4
"""A search for a distribution whose classes are unnamed may end at a saddle point where all of them are alike."""


Case = tuple[Observations, Tensor, Tensor]
"""A group of each distinct case of a set, the case of each group, and the summed weight of the groups of each case."""


def find_cases(s: Observations) -> Case:
    """Find the distinct cases of a set: if all rows are alike, only the size and the observation of a group matter."""
    n = len(s.groups)
    table = torch.cat([s.groups.sizes[:, None].double(), s.checked.reshape(n, -1).double()], 1)
    cases, case = table.unique(dim=0, return_inverse=True)
    first = torch.full((len(cases),), n).scatter_reduce_(0, case, torch.arange(n), "amin")
    return s.take(first), case, s.weight * torch.bincount(case, s.weights)


def fit_constant(cases: Sequence[Case], starts: Sequence[np.ndarray], prior: float = 0.0) -> Tensor:
    """Return the logits, the same for every row, with the largest mean log-likelihood per group, shape ``(classes,)``.

    ``prior`` is a penalty on squared logits.
    """
    # Per member: the first step is as long as the gradient, which in large groups would lead to the bounds.
    members = sum(float(weights @ s.groups.sizes.double()) for s, _, weights in cases)
    n_groups = sum(float(weights.sum()) for _, _, weights in cases)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        logits = torch.from_numpy(values).requires_grad_()
        total = prior * n_groups * logits.square().mean() - sum(w @ _log_likelihood(s, logits) for s, _, w in cases)
        (slope,) = torch.autograd.grad(total / members, logits)
        return total.item() / members, slope.numpy()

    bounds, options = [(-MAX_LOGIT, MAX_LOGIT)] * len(starts[0]), {"ftol": TOLERANCE}
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for start in starts]
    return torch.from_numpy(min(found, key=lambda result: result.fun).x)


def fit_null_model(sets: Sequence[Observations]) -> tuple[Tensor, list[Tensor]]:
    """Fit the class distribution that explains all groups best if every row has it.

    It maximises the mean over sets of the log-likelihood per group, by the weights of sets and groups. For counts it is
    the frequencies of the classes; for pairs and triplets, which class has which share is arbitrary.

    Returns the distribution, ``(classes,)``, and for each set the log-likelihood of its groups under it, ``(groups,)``.

    Examples
    --------
    >>> from unbag import Groups, LabelProportions
    >>> counts = Observations(LabelProportions(), Groups.from_sizes([2, 2]), [[2, 0], [1, 1]], 2)
    >>> fit_null_model([counts])[0].tolist()
    [0.75, 0.25]
    """
    if all(s.aggregate.outcome == "class_counts" for s in sets):
        frequencies = torch.stack([s.weights @ s.checked.double() / s.weights.sum() for s in sets]).sum(0)
        probs = frequencies / frequencies.sum()
    else:
        random, k = np.random.default_rng(0), sets[0].n_classes
        starts = [np.linspace(0, 1, k), *random.normal(size=(N_STARTS - 1, k))]
        cases = [find_cases(s.counting().for_training()) for s in sets]
        probs = fit_constant([(s, case, w / w.sum() * s.weight) for s, case, w in cases], starts).softmax(0)
    return probs, [_log_likelihood(s, probs.log())[case] for s, case, _ in map(find_cases, sets)]


def _log_likelihood(s: Observations, logits: Tensor) -> Tensor:
    """Return the log-likelihood of each group if every row has these logits, ``(classes,)``."""
    if s.aggregate.outcome == "class_counts":  # the multinomial, whatever the sizes
        counts = s.checked.double()
        ways = torch.lgamma(counts.sum(1) + 1) - torch.lgamma(counts + 1).sum(1)
        return ways + torch.where(counts > 0, counts * logits.log_softmax(0), 0.0).sum(1)
    of_members = logits.expand(len(s.groups.members), -1)
    return s.aggregate.checked_evidence(of_members, s.groups.segments, s.checked).log_likelihood
