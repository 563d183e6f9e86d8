"""Pooled columns of groups: what a bag looks like as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from unbag.data.groups import Groups


def pool(rows: Tensor, groups: Groups) -> Tensor:
    """Return the mean, least and largest value of every column in each group, ``(groups, 3 columns)``, in float32.

    Examples
    --------
    >>> pool(torch.tensor([[0.0], [4.0], [1.0]]), Groups.from_sizes([2, 1]))
    tensor([[2., 0., 4.],
            [1., 1., 1.]])
    """
    groups = groups.to("cpu")
    # In float64, or else the mean of a constant column would vary by rounding, and be scaled up.
    members, sizes = groups.gather(rows.cpu()).double(), groups.sizes
    kinds = ("mean", "min", "max")
    return torch.cat([torch.segment_reduce(members, kind, lengths=sizes) for kind in kinds], 1).float()
