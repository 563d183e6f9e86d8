"""Summaries of the rows of each group, for classifiers of whole bags."""

from __future__ import annotations

import torch
from torch import Tensor

from unbag.data.groups import Groups


def pool(rows: Tensor, groups: Groups) -> Tensor:
    """Compute the mean, minimum and maximum of each column in each group, float32, shape ``(groups, 3 columns)``."""
    groups = groups.to("cpu")
    # In float32, rounding would make the mean of a constant column vary, and scaling would enlarge the differences.
    members = groups.gather(rows.cpu()).double()
    return torch.cat(
        [torch.segment_reduce(members, kind, lengths=groups.sizes) for kind in ("mean", "min", "max")], 1
    ).float()
