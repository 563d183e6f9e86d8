"""Whether a bag contains a positive instance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.logspace import log1mexp
from unbag._kernels.segments import Segments
from unbag.aggregates.base import Aggregate, check_binary, check_labels
from unbag.aggregates.traits import AnswerColumn, Wording
from unbag.data.groups import Groups

RARE = -40.0
"""Log of an expected count of positives below which it equals p(at least one) to one part in e^40."""


class MultipleInstance(Aggregate):
    """Bags of any sizes with the observation 1 if at least one member is positive (class 1 of 2).

    ``p(z=1 | x) = 1 - prod_i p(y_i=0)``. For more than two classes, see ``AtLeast(1, label)``.

    Examples
    --------
    >>> bags = Groups.from_sizes([2, 3])
    >>> MultipleInstance().observe([0, 0, 0, 1, 0], bags, n_classes=2)
    tensor([0, 1])
    >>> logits = torch.zeros(5, 2)
    >>> MultipleInstance().log_likelihood(logits, bags, [0, 1]).exp()
    tensor([0.2500, 0.8750])
    """

    outcome = "yes_no"
    n_classes = 2
    weights = "current"
    pooled = True
    wording = Wording("Bags", "whether any of its rows is of the second class", "bag", "bags", "positive", "negative")
    column = AnswerColumn(
        yes=("positive",),
        contrary=("negative",),
        doubtful=("healthy", "normal", "benign", "absent", "clean", "same", "different"),
        meanings=("a member is positive", "no member is positive", "no member is positive", "a member is positive"),
    )

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_two_classes(n_classes)
        members = check_labels(labels, groups, n_classes)
        return (groups.segments.sum(members) > 0).long()

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_two_classes(n_classes)
        return check_binary(z, groups, n_classes)

    def capturable(self, size: int, n_classes: int) -> bool:
        return True

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        # Log-odds preserve the digits of a log-probability near zero, which would be lost by rounding.
        odds = log_probs[:, 1] - log_probs[:, 0]
        negative, positive = logsigmoid(-odds), logsigmoid(odds)  # each (memberships,)
        none = segments.sum(negative)  # (groups,)
        # log(1 - e^none) is exact except for positives so rare that 1 - p rounds to 1; p(at least one) is then the sum
        # of their probabilities.
        expected = segments.logsumexp(positive)
        some = torch.where(expected < RARE, expected, log1mexp(none))
        # p(member positive) <= p(bag positive), except for rounding.
        conditional = (positive - segments.expand(some)).clamp_max(0)
        in_positive_bag = torch.stack([-torch.expm1(conditional), conditional.exp()], 1)
        in_negative_bag = torch.stack([torch.ones_like(negative), torch.zeros_like(negative)], 1)
        return torch.where(z, some, none), torch.where(segments.expand(z)[:, None], in_positive_bag, in_negative_bag)


def _check_two_classes(n_classes: int) -> None:
    if n_classes != 2:
        raise ValueError(
            f"MultipleInstance has two classes, negative and positive, but n_classes is {n_classes}; "
            "for one class against all others use AtLeast(1, label)"
        )
