"""Observations of single classes: a count, a threshold, the most frequent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unbag._kernels.logspace import log_softmax, normalise
from unbag._kernels.poisson_binomial import infer_two_counts
from unbag._kernels.segments import Segments
from unbag._utils.checks import check_n_classes, format_indices
from unbag.aggregates.base import Aggregate, check_labels
from unbag.aggregates.fold import FromFold
from unbag.aggregates.multiple_instance import MultipleInstance
from unbag.aggregates.traits import AnswerColumn, Wording
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups


class CountOf(Aggregate):
    """How many members of a group are of one class.

    Exact for groups of any size: whether a member is of the class or of any other is all that counts.

    Examples
    --------
    >>> from unbag import Groups
    >>> CountOf(2).observe([2, 0, 2, 1], Groups.from_sizes([3, 1]), n_classes=3)
    tensor([2, 0])
    """

    wording = Wording("Counts of one class", "how many of its rows are of one class")
    column = AnswerColumn(yes=("count", "counts", "number", "n"))

    def __init__(self, label: int) -> None:
        self.label = _check_label(label)

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self.label, n_classes, self)
        of_label = check_labels(labels, groups, n_classes) == self.label
        return groups.segments.sum(of_label.long())

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self.label, check_n_classes(n_classes), self)
        z = read_per_group(z, groups)
        if z.shape != (len(groups),):
            raise ValueError(f"z must have one entry per group, shape ({len(groups)},); got shape {tuple(z.shape)}")
        if z.is_complex():
            raise TypeError(f"z must be whole numbers, got {z.dtype}")
        counts = z.long()
        if bool((wrong := (counts != z) | (counts < 0) | (counts > groups.sizes)).any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(
                f"z must be whole numbers from 0 to the size of the group, not so for "
                f"{format_indices('group', wrong, groups.name)}: z[{first}] is {z[first].item()}, and the group has "
                f"{int(groups.sizes[first])} members"
            )
        return counts

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        return groups.segments.sum(log_probs[:, self.label].exp())

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        exact = log_softmax(log_probs.double())  # the roundings of many members would add up
        others = [place for place in range(log_probs.shape[1]) if place != self.label]
        log_other, share_of_others = normalise(exact[:, others])
        log_likelihood, yes = infer_two_counts(log_other, exact[:, self.label], segments, z)
        posterior = torch.empty_like(exact)
        posterior[:, self.label] = yes
        # The other classes share what is left as they would without the observation.
        posterior[:, others] = (1 - yes)[:, None] * share_of_others.nan_to_num(0.0)
        return log_likelihood.to(log_probs.dtype), posterior


class AtLeast(FromFold):
    """Whether at least so many members of a group are of one class.

    Examples
    --------
    >>> from unbag import Groups
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
        super().__init__(0, lambda so_far, met: min(so_far + (met == label), count), lambda so_far: so_far >= count)

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self.label, n_classes, self)
        return super().observe(labels, groups, n_classes)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        _check_is_class(self.label, n_classes, self)
        return super().check(z, groups, n_classes)


class Majority(FromFold):
    """The class that most members of a group are of; of classes that tie, the one with the lowest number.

    A state is how many of each class were met, so the cost grows steeply with the number of classes.

    Examples
    --------
    >>> from unbag import Groups
    >>> Majority().observe([2, 2, 0, 1, 0], Groups.from_sizes([3, 2]), n_classes=3)
    tensor([2, 0])
    """

    outcome = "class"
    wording = Wording("Majorities", "which class most of its rows are of")
    column = AnswerColumn(yes=("majority", "most"))

    def __init__(self) -> None:
        # Sorted labels hold just what counts hold, without knowing the number of classes.
        super().__init__((), lambda met, label: tuple(sorted((*met, label))), lambda met: max(met, key=met.count))


def _check_label(label: int) -> int:
    if isinstance(label, bool) or not isinstance(label, int) or label < 0:
        raise ValueError(f"label must be a class number, 0 or more, got {label!r}")
    return label


def _check_is_class(label: int, n_classes: int, aggregate: Aggregate) -> None:
    if label >= n_classes:
        raise ValueError(f"{aggregate!r} looks for class {label}, but there are only {n_classes} classes, from 0 on")
