"""Observations of single classes, as folds over labels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unbag.aggregates.fold import FromFold
from unbag.groups import Groups


class _OfOneClass(FromFold):
    label: int

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        self._check_label(n_classes)
        return super().observe(labels, groups, n_classes)

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        self._check_label(n_classes)
        return super().check(z, groups, n_classes)

    def _check_label(self, n_classes: int) -> None:
        if self.label >= n_classes:
            raise ValueError(
                f"{self!r} looks for class {self.label}, but there are only {n_classes} classes, from 0 on"
            )


class CountOf(_OfOneClass):
    """How many members of a group are of one class.

    Examples
    --------
    >>> from unbag import Groups
    >>> CountOf(2).observe([2, 0, 2, 1], Groups.from_sizes([3, 1]), n_classes=3)
    tensor([2, 0])
    """

    def __init__(self, label: int) -> None:
        self.label = _check_label(label)
        super().__init__(0, lambda count, met: count + (met == label), lambda count: count)


class AtLeast(_OfOneClass):
    """Whether at least so many members of a group are of one class.

    Examples
    --------
    >>> from unbag import Groups
    >>> AtLeast(2, label=1).observe([1, 0, 1, 1], Groups.from_sizes([3, 1]), n_classes=2)
    tensor([1, 0])
    """

    def __init__(self, count: int, label: int = 1) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a whole number of at least 1, got {count!r}")
        self.count, self.label = count, _check_label(label)
        super().__init__(0, lambda so_far, met: min(so_far + (met == label), count), lambda so_far: so_far >= count)


class Majority(FromFold):
    """The class that most members of a group are of; of classes that tie, the one with the lowest number.

    A state is how many of each class were met, so the cost grows steeply with the number of classes.

    Examples
    --------
    >>> from unbag import Groups
    >>> Majority().observe([2, 2, 0, 1, 0], Groups.from_sizes([3, 2]), n_classes=3)
    tensor([2, 0])
    """

    def __init__(self) -> None:
        # Sorted labels hold just what counts hold, without knowing the number of classes.
        super().__init__((), lambda met, label: tuple(sorted((*met, label))), lambda met: max(met, key=met.count))


def _check_label(label: int) -> int:
    if isinstance(label, bool) or not isinstance(label, int) or label < 0:
        raise ValueError(f"label must be a class number, 0 or more, got {label!r}")
    return label
