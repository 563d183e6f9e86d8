"""Deep learning from label proportions: the mean prediction of a group against its proportions."""

from __future__ import annotations

from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.objectives.objective import match_proportions
from unbag_experiments.baselines.base import Method


class MeanProportion(Method):
    """Match the mean prediction of a group with its proportions: ``sum_j q_j log(q_j / p_j)``.

    q are the observed proportions, p is the mean of the predicted probabilities over the members, taken in log space.
    The gradient is that of the cross entropy ``-sum_j q_j log p_j``. There is nothing to choose.

    Examples
    --------
    >>> import torch
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
        return match_proportions(outputs, groups, z)


METHOD = MeanProportion()
