"""Comparison of two instances: whether they have the same class."""

from __future__ import annotations

import torch
from torch import Tensor

from unbag._kernels.logspace import log_complement, normalise
from unbag._kernels.products import infer_products, sum_others
from unbag._kernels.segments import Segments
from unbag.aggregates.base import is_tracing
from unbag.aggregates.binary import BinaryAggregate
from unbag.aggregates.traits import AnswerColumn, Wording


class PairwiseSimilarity(BinaryAggregate):
    """Pairs with the observation 1 if both labels are equal.

    ``p(z=1 | x_1, x_2) = sum_j p(y_1=j) p(y_2=j)``. Pairs do not identify the classes: any permutation of them has the
    same likelihood.

    Examples
    --------
    >>> from unbag import Groups
    >>> pairs = Groups.from_tuples([[0, 1], [1, 2]])
    >>> PairwiseSimilarity().observe([4, 4, 0], pairs, n_classes=5)
    tensor([1, 0])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]).log()
    >>> PairwiseSimilarity().posterior(logits, pairs, [1, 0])
    tensor([[0.9000, 0.1000],
            [0.9000, 0.1000],
            [0.8000, 0.2000],
            [0.2000, 0.8000]])
    """

    size = 2
    wording = Wording("Pairs", "whether its two rows are of one class", "pair", "pairs", "same", "different")
    column = AnswerColumn(
        yes=("similar", "same", "equal", "alike", "match", "positive"),
        contrary=(
            *("different", "dissimilar", "unequal", "unlike", "distinct", "differ", "differs", "mismatch"),
            *("unsimilar", "inequal", "opposite", "negative"),
        ),
        doubtful=("distance", "lower", "higher", "greater", "closer", "farther"),
        meanings=("the two are alike", "the two differ", "the two differ", "the two are alike"),
        symmetric=True,
    )

    def _compare(self, *labels: Tensor) -> Tensor:
        first, second = labels
        return first == second

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        def weigh(probs: Tensor) -> Tensor:
            partners = probs.flip(0)
            return torch.where(z, partners, sum_others(partners))

        if not is_tracing(log_probs) and (products := infer_products(log_probs, len(segments), weigh)) is not None:
            return products
        pairs = log_probs.view(len(segments), 2, -1)
        partners = pairs.flip(1)
        # The partner of a member with label j has label j, or any label but j.
        joint = pairs + torch.where(z[:, None, None], partners, log_complement(partners))
        log_likelihood, posterior = normalise(joint)
        return log_likelihood[:, 0], posterior.view_as(log_probs)
