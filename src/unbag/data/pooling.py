"""Summaries of the rows of each group, for classifiers of whole bags."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.data.groups import Groups

SHARES = (0.02, 0.05, 0.1, 0.2, 1.0)
"""Shares of the members of a group whose largest scores are averaged."""


def pool(rows: Tensor, groups: Groups) -> Tensor:
    """Compute the mean, minimum and maximum of each column in each group, float32, shape ``(groups, 3 columns)``."""
    groups = groups.to("cpu")
    # In float32, rounding would make the mean of a constant column vary, and scaling would enlarge the differences.
    members = groups.gather(rows.cpu()).double()
    return torch.cat(
        [torch.segment_reduce(members, kind, lengths=groups.sizes) for kind in ("mean", "min", "max")], 1
    ).float()


def pool_scores(scores: Tensor, segments: Segments) -> Tensor:
    """Compute the means of the largest scores of each group, float32, shape ``(groups, shares)``.

    Parameters
    ----------
    scores
        One score per membership.
    segments
        Memberships of each group.
    """
    means = []
    for share in SHARES:
        selected = select_top(scores, segments, share)
        means.append(segments.sum(torch.where(selected, scores, 0)) / segments.sum(selected.long()))
    return torch.stack(means, 1).float()


def select_top(scores: Tensor, segments: Segments, share: float) -> Tensor:
    """Return a flag for a share of the members of each group, at least one, with the largest scores."""
    order = torch.from_numpy(np.lexsort((-scores.numpy(), segments.index.numpy())))
    rank = torch.arange(len(order)) - segments.expand(segments.offsets[:-1])
    chosen = rank < segments.expand((share * segments.sizes).round().clamp_min(1))
    return torch.zeros(len(order), dtype=torch.bool).index_copy_(0, order, chosen)
