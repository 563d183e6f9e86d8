"""Base class of the kinds of observations that are 0 or 1."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from unbag.aggregates.base import Aggregate, check_binary, check_labels
from unbag.data.groups import Groups


class BinaryAggregate(Aggregate):
    """A comparison of the labels of a fixed number of members, 1 where it holds.

    A subclass defines the comparison of labels and :meth:`infer`, which a CUDA graph can capture.
    """

    outcome = "yes_no"

    @abstractmethod
    def _compare(self, *labels: Tensor) -> Tensor:
        """Return where the observation is 1, from the labels of the first members, of the second, and so on."""

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        self.check_sizes(groups)
        members = check_labels(labels, groups, n_classes)
        return self._compare(*members.view(len(groups), -1).unbind(1)).long()

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        return check_binary(z, groups, n_classes)

    def capturable(self, size: int, n_classes: int) -> bool:
        return True
