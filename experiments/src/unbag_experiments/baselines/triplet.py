"""Triplet loss: the second of three nearer to the first than the third is, by a margin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from unbag._kernels.segments import Segments
from unbag_experiments.baselines.base import check_positive
from unbag_experiments.baselines.embedding import Embedding


@dataclass(frozen=True)
class Triplet(Embedding):
    """Rank distances on the unit sphere: ``max(0, |f_1 - f_2|^2 - |f_1 - f_3|^2 + margin)`` where ``z = 1``, else 0.

    f is the output scaled to length one, as in the article. Its loss takes an anchor, a row of the anchor's class and a
    row of another. Only ``z = 1`` says that a triplet is one: the first two are of one class, the third is not.
    ``z = 0`` says no more than that it is not. The third may be of the first's class and the second not, in which case
    exchanging the two would make it one; but with ten classes of equal size this is so in one of ten, and in nine the
    second is as far from the first as the third is, with nothing to rank. So these triplets cost nothing here, which
    on validation rows was also the better of the two.

    Parameters
    ----------
    margin
        By how much the squared distances should differ at least. The article has 0.2; of 0.2, 0.5 and 1, the default
        did best on validation rows of vehicle and optdigits.
    width
        Outputs of the model; None for as many as there are classes.

    Examples
    --------
    >>> triplets = Segments.from_sizes([3])
    >>> outputs = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    >>> Triplet(margin=0.5).objective(outputs, triplets, torch.tensor([True]))
    tensor([2.5000])
    """

    name = "triplet"
    title = "Triplet loss"
    source = (
        "Schroff, Kalenichenko and Philbin, FaceNet: A Unified Embedding for Face Recognition and Clustering, CVPR 2015"
    )
    in_paper = True
    problems = ("triplet_comparison",)

    margin: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("margin", self.margin)

    def embed(self, outputs: Tensor) -> Tensor:
        """Return the outputs scaled to length one."""
        return normalize(outputs)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each triplet."""
        anchor, near, far = self.embed(outputs).view(len(groups), 3, -1).unbind(1)
        difference = (anchor - near).square().sum(1) - (anchor - far).square().sum(1)  # (groups,)
        return torch.where(z, (difference + self.margin).clamp_min(0), 0)


METHOD = Triplet()
