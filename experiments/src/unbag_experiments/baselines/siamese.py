"""Siamese network: is a pair of one class, by the distance of its embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.segments import Segments
from unbag_experiments.baselines.base import check_positive
from unbag_experiments.baselines.embedding import Embedding


@dataclass(frozen=True)
class Siamese(Embedding):
    """Logistic regression of "same class" on a weighted L1 distance of two embeddings.

    ``p(z = 1) = sigmoid(margin - sum_j |f_j(x_1) - f_j(x_2)|)``, and the loss is the negative log of the probability of
    what was observed. The article learns a weight for each ``j``; here the last layer of the model, which is linear,
    holds it as the scale of its output ``j``. Weights are positive by that: being apart never speaks for one class. The
    article passes the embedding through a sigmoid first, which would limit that scale and is left out. Its weight
    decay is that of the experiment's settings.

    Parameters
    ----------
    margin
        The distance at which a pair is as likely of one class as not; ``sigmoid(margin)`` is the largest probability of
        one class. A constant, since outputs belong to single rows; distances adapt to it. Of 1, 2, 5 and 10, all but
        the last did about as well on validation rows of vehicle and optdigits.
    width
        Outputs of the model; None for as many as there are classes.

    Examples
    --------
    >>> pairs = Segments.from_sizes([2])
    >>> Siamese(margin=2.0).objective(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), pairs, torch.tensor([True]))
    tensor([0.6931])
    """

    name = "siamese"
    title = "Siamese network"
    source = (
        "Koch, Zemel and Salakhutdinov, Siamese Neural Networks for One-shot Image Recognition, ICML Deep Learning "
        "Workshop 2015"
    )
    in_paper = True
    problems = ("pairwise_similarity",)

    margin: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("margin", self.margin)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the logistic loss of each pair."""
        first, second = outputs.view(len(groups), 2, -1).unbind(1)
        log_odds = self.margin - (first - second).abs().sum(1)  # (groups,), of one class
        return -logsigmoid(torch.where(z, log_odds, -log_odds))


METHOD = Siamese()
