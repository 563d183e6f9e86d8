"""Observations of one class of each group: a count, whether it occurs, a threshold, the most frequent class."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.logspace import log1mexp, log_softmax, normalise
from unbag._kernels.poisson_binomial import infer_two_counts
from unbag._kernels.segments import Segments
from unbag._utils.checks import check_n_classes, raise_if_any
from unbag.aggregates.base import Aggregate, AnswerColumn, Wording, check_binary, check_labels, check_one_per_group
from unbag.aggregates.fold import FromFold
from unbag.data.groups import Groups

RARE = -40.0
"""Log of an expected count of positives below which it equals p(at least one) to one part in e^40."""


class CountOf(Aggregate):
    """Number of members of one class, exact for groups of any size.

    Examples
    --------
    >>> CountOf(2).observe([2, 0, 2, 1], Groups.from_sizes([3, 1]), n_classes=3)
    tensor([2, 0])
    """

    wording = Wording("Counts of one class", "how many of its rows are of one class")
    column = AnswerColumn(yes=("count", "counts", "number", "n"))

    def __init__(self, label: int) -> None:
        self.label = _check_label(label)

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        members = check_labels(labels, groups, n_classes)
        _check_is_class(self, n_classes)
        return groups.segments.sum((members == self.label).long())

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self, check_n_classes(n_classes))
        z = check_one_per_group(z, groups)
        if z.is_complex():
            raise TypeError(f"z must be whole numbers, got {z.dtype}")
        counts = z.long()
        raise_if_any(
            (counts != z) | (counts < 0) | (counts > groups.sizes),
            "z must be whole numbers from 0 to the size of the group",
            lambda first: f"z[{first}] is {z[first].item()}, and the group has {int(groups.sizes[first])} members",
            groups.name,
        )
        return counts

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        return groups.segments.sum(log_probs[:, self.label].exp())

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        exact = log_softmax(log_probs.double())  # rounding errors of many members would accumulate
        others = [place for place in range(log_probs.shape[1]) if place != self.label]
        log_other, share_of_others = normalise(exact[:, others])
        log_likelihood, yes = infer_two_counts(log_other, exact[:, self.label], segments, z)
        posterior = torch.empty_like(exact)
        posterior[:, self.label] = yes
        # The observation does not change the ratios of the other classes.
        posterior[:, others] = (1 - yes)[:, None] * share_of_others.nan_to_num(0.0)
        return log_likelihood.to(log_probs.dtype), posterior


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
        labels = check_labels(labels, groups, n_classes)
        return (groups.segments.sum(labels) > 0).long()

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


class AtLeast(FromFold):
    """Whether at least ``count`` members of a group have a class.

    Examples
    --------
    >>> AtLeast(2, label=1).observe([1, 0, 1, 1], Groups.from_sizes([3, 1]), n_classes=2)
    tensor([1, 0])
    """

    outcome = "yes_no"
    wording = Wording("Thresholds", "whether at least so many of its rows are of one class", yes="yes", no="no")
    column = AnswerColumn(
        yes=("enough", "positive"),
        contrary=("few", "negative"),
        doubtful=MultipleInstance.column.doubtful,
        meanings=(
            "enough members are of the class",
            "too few members are of the class",
            "too few members are of the class",
            "enough members are of the class",
        ),
    )

    def __init__(self, count: int, label: int = 1) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a whole number of at least 1, got {count!r}")
        self.count, self.label = count, _check_label(label)
        super().__init__(0, lambda total, member: min(total + (member == label), count), lambda total: total >= count)

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self, n_classes)
        return super().observe(labels, groups, n_classes)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self, n_classes)
        return super().check(z, groups, n_classes)


class Majority(FromFold):
    """The most frequent class of the members of a group; of classes that tie, the one with the lowest number.

    A state is the count of each class so far, so that the cost grows steeply with the number of classes.

    Examples
    --------
    >>> Majority().observe([2, 2, 0, 1, 0], Groups.from_sizes([3, 2]), n_classes=3)
    tensor([2, 0])
    """

    outcome = "class"
    wording = Wording("Majorities", "which class most of its rows are of")
    column = AnswerColumn(yes=("majority", "most"))

    def __init__(self) -> None:
        # Sorted labels are equivalent to counts, and do not require the number of classes.
        super().__init__(
            (), lambda labels, label: tuple(sorted((*labels, label))), lambda labels: max(labels, key=labels.count)
        )


def _check_label(label: int) -> int:
    if isinstance(label, bool) or not isinstance(label, int) or label < 0:
        raise ValueError(f"label must be a class number, 0 or more, got {label!r}")
    return label


def _check_is_class(aggregate: CountOf | AtLeast, n_classes: int) -> None:
    if aggregate.label >= n_classes:
        raise ValueError(f"the label of {aggregate!r} must be one of the {n_classes} classes, 0 to {n_classes - 1}")


def _check_two_classes(n_classes: int) -> None:
    if n_classes != 2:
        raise ValueError(
            f"MultipleInstance has two classes, negative and positive, but n_classes is {n_classes}; "
            "for one class against all others use AtLeast(1, label)"
        )
