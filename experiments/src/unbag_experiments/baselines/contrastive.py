"""Contrastive loss: pairs of one class near each other, others at least a margin apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag_experiments.baselines.base import check_positive
from unbag_experiments.baselines.embedding import Embedding


@dataclass(frozen=True)
class Contrastive(Embedding):
    """Pull pairs of one class together, and push others apart until a margin lies between them.

    ``d^2 / 2`` where ``z = 1``, and ``max(0, margin - d)^2 / 2`` where ``z = 0``, with d the Euclidean distance of the
    two outputs.

    Parameters
    ----------
    margin
        Beyond this distance, pairs of different classes cost nothing. The article gives no number; of 1, 2 and 5, all
        did about as well on validation rows of vehicle and optdigits.
    width
        Outputs of the model; None for as many as there are classes.

    Examples
    --------
    >>> pairs = Segments.from_sizes([2, 2])
    >>> outputs = torch.tensor([[0.0, 3.0], [4.0, 0.0], [0.0, 3.0], [4.0, 0.0]])
    >>> Contrastive(margin=6.0).objective(outputs, pairs, torch.tensor([True, False]))
    tensor([12.5000,  0.5000])
    """

    name = "contrastive"
    title = "Contrastive loss"
    source = "Hadsell, Chopra and LeCun, Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006"
    in_paper = True
    problems = ("pairwise_similarity",)

    margin: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("margin", self.margin)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each pair."""
        first, second = outputs.view(len(groups), 2, -1).unbind(1)
        distance = torch.linalg.vector_norm(first - second, dim=1)  # (groups,); its slope is 0 where it is 0
        return torch.where(z, distance, (self.margin - distance).clamp_min(0)).square() / 2


METHOD = Contrastive()
