"""(2+1)-tuple loss: the second of three more similar to the first than the third is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.segments import Segments
from unbag_experiments.baselines.base import check_positive
from unbag_experiments.baselines.embedding import Embedding


@dataclass(frozen=True)
class Tuple21(Embedding):
    """The (N+1)-tuplet loss with one negative, N = 2: ``log(1 + exp(f_1 . f_3 - f_1 . f_2))`` where ``z = 1``, else 0.

    To this the mean squared length of the three outputs is added, times a small constant: without it, the inner
    products could grow for ever. Why triplets with ``z = 0`` cost nothing is told by
    :class:`unbag_experiments.baselines.triplet.Triplet`.

    Parameters
    ----------
    regulariser
        How much the mean squared length counts; the article regularises it too. Of 0.002 and 0.02, the default did best
        on validation rows of vehicle and optdigits.
    width
        Outputs of the model; None for as many as there are classes.

    Examples
    --------
    >>> triplets = Segments.from_sizes([3, 3])
    >>> outputs = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]).repeat(2, 1)
    >>> Tuple21(regulariser=0.003).objective(outputs, triplets, torch.tensor([True, False]))
    tensor([0.6971, 0.0000])
    """

    name = "tuple_2_1"
    title = "(2+1)-tuple loss"
    source = "Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016"
    in_paper = True
    problems = ("triplet_comparison",)

    regulariser: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("regulariser", self.regulariser)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each triplet."""
        triples = outputs.view(len(groups), 3, -1)
        anchor, near, far = triples.unbind(1)
        loss = -logsigmoid((anchor * (near - far)).sum(1))  # (groups,)
        length = triples.square().sum(2).mean(1)
        return torch.where(z, loss + self.regulariser * length, 0)


METHOD = Tuple21()
