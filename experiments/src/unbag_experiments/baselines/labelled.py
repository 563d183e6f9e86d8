"""Base class of methods that learn from one label per row."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import one_hot

from unbag import Groups
from unbag._kernels.segments import Segments
from unbag.aggregates import LabelProportions
from unbag.training import Observations
from unbag_experiments.baselines.base import Method


class Labelled(Method):
    """A method that learns by cross entropy, from observations of groups of one."""

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return ``-log p_y`` of each row, y being the class with a count of one."""
        return -(outputs.log_softmax(-1) * z).sum(1)


def label_rows(rows: Tensor, labels: Tensor, n_classes: int, n_rows: int) -> Observations:
    """Return the labels of some rows as counts of groups of one.

    Examples
    --------
    >>> import torch
    >>> label_rows(torch.tensor([4, 2]), torch.tensor([1, 0]), n_classes=2, n_rows=5).z
    tensor([[0, 1],
            [1, 0]])
    """
    groups = Groups.from_tuples(rows[:, None], n_rows=n_rows)
    return Observations(LabelProportions(), groups, one_hot(labels, n_classes), n_classes)
