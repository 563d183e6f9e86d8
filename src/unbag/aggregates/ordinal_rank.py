"""Comparison of two instances with ordered classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from unbag._kernels.logspace import cumulate, normalise
from unbag._kernels.segments import Segments
from unbag.aggregates.binary import BinaryAggregate
from unbag.aggregates.traits import AnswerColumn, Wording

Relation = Literal["<", ">", "<=", ">="]

_COMPARE = {"<": torch.lt, ">": torch.gt, "<=": torch.le, ">=": torch.ge}
_OPPOSITE: dict[Relation, Relation] = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRROR: dict[Relation, Relation] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class OrdinalRank(BinaryAggregate):
    """Pairs with ordered classes and the observation 1 if ``y_1 < y_2``, or another relation.

    Examples
    --------
    >>> from unbag import Groups
    >>> pairs = Groups.from_tuples([[0, 1], [1, 0], [0, 0]])
    >>> OrdinalRank().observe([1, 2], pairs, n_classes=3)
    tensor([1, 0, 0])
    >>> OrdinalRank(relation=">=").observe([1, 2], pairs, n_classes=3)
    tensor([0, 1, 1])
    """

    size = 2
    wording = Wording("Ranks", "whether its two rows stand in a given order", "pair", "pairs", "yes", "no")
    column = AnswerColumn(
        yes=("lower", "less", "smaller", "below"),
        contrary=("higher", "greater", "larger", "bigger", "above", "more"),
        doubtful=("better", "worse", "preferred", "wins", "won", "winner", "beats", "before", "after", "same", "equal"),
        meanings=("the first is lower", "the first is higher", "the first is not lower", "the first is not higher"),
    )

    def __init__(self, relation: Relation = "<") -> None:
        if relation not in _COMPARE:
            raise ValueError(f"relation must be one of {', '.join(_COMPARE)}; got {relation!r}")
        self.relation: Relation = relation

    def _compare(self, *labels: Tensor) -> Tensor:
        return _COMPARE[self.relation](*labels)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        pairs = log_probs.view(len(segments), 2, -1)
        up_to, from_on = cumulate(pairs)

        def partners(relation: Relation) -> Tensor:
            """Compute log p(the pair satisfies the relation | label of a member): (groups, 2, k)."""
            first = _sum_related(relation, up_to[:, 1], from_on[:, 1])
            second = _sum_related(_MIRROR[relation], up_to[:, 0], from_on[:, 0])
            return torch.stack([first, second], 1)

        yes, no = partners(self.relation), partners(_OPPOSITE[self.relation])
        joint = pairs + torch.where(z[:, None, None], yes, no)
        log_likelihood, posterior = normalise(joint)
        return log_likelihood[:, 0], posterior.view_as(log_probs)


def _sum_related(relation: Relation, up_to: Tensor, from_on: Tensor) -> Tensor:
    """Compute the log-probability that a label v satisfies ``j relation v``, for each j of the last dimension."""
    nothing = up_to.new_full((*up_to.shape[:-1], 1), float("-inf"))
    if relation == "<":
        return torch.cat([from_on[..., 1:], nothing], -1)
    if relation == ">":
        return torch.cat([nothing, up_to[..., :-1]], -1)
    return from_on if relation == "<=" else up_to
