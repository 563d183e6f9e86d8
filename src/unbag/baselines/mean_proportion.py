"""Deep learning from label proportions: the mean prediction of a group against its proportions."""

from __future__ import annotations

import torch
from torch import Tensor

from unbag.baselines.base import Method
from unbag.segments import Segments


def proportion_divergence(log_probs: Tensor, groups: Segments, counts: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of observed proportions from the mean prediction of each group.

    ``log_probs`` has one row per membership, ``counts`` one per group.

    Examples
    --------
    >>> log_probs = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).log()
    >>> proportion_divergence(log_probs, Segments.from_sizes([2]), torch.tensor([[2, 0]]))
    tensor([0.6931])
    """
    sizes = groups.sizes[:, None]
    log_mean = sum_probabilities(log_probs, groups) - sizes.to(log_probs.dtype).log()  # (groups, k)
    observed = counts.to(log_probs.dtype) / sizes
    # A class that is not in a group costs nothing, even where its log-probability is without bounds.
    return (torch.xlogy(observed, observed) - observed * log_mean.masked_fill(counts == 0, 0)).sum(1)


def sum_probabilities(log_probs: Tensor, groups: Segments) -> Tensor:
    """Return the log of the summed probabilities of each class: ``(memberships, k)`` to ``(groups, k)``."""
    if groups.uniform_size is not None:
        return log_probs.view(len(groups), groups.uniform_size, -1).logsumexp(1)
    return torch.stack([groups.logsumexp(column) for column in log_probs.unbind(1)], 1)


class MeanProportion(Method):
    """Match the mean prediction of a group with its proportions: ``sum_j q_j log(q_j / p_j)``.

    q are the observed proportions, p is the mean of the predicted probabilities over the members, taken in log space.
    The gradient is that of the cross entropy ``-sum_j q_j log p_j``. There is nothing to choose.

    Examples
    --------
    >>> METHOD.objective(torch.zeros(3, 2), Segments.from_sizes([1, 2]), torch.tensor([[1, 0], [1, 1]]))
    tensor([0.6931, 0.0000])
    """

    name = "mean_proportion"
    title = "Mean proportion (DLLP)"
    source = (
        "Ardehaly and Culotta, Co-training for Demographic Classification Using Deep Learning from Label Proportions, "
        "ICDM Workshops 2017"
    )
    in_paper = False
    problems = ("label_proportions",)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the divergence of each group."""
        return proportion_divergence(outputs.log_softmax(-1), groups, z)


METHOD = MeanProportion()
