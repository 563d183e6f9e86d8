"""Observations of single classes, as folds over labels."""

from __future__ import annotations

from unbag.aggregates.fold import FromFold


class CountOf(FromFold):
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


class AtLeast(FromFold):
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
        super().__init__(0, lambda met, label_: min(met + (label_ == label), count), lambda met: met >= count)


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
