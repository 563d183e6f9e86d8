"""Bags: lists of arrays as rows and groups, and summaries of the rows of each bag."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.data.groups import Groups


def is_list_of_bags(X: Any) -> bool:
    """Return whether an object is a list of tables in memory, each with the rows of a bag."""
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(isinstance(bag, np.ndarray | Tensor) and bag.ndim == 2 for bag in X)
    )


def join_bags(bags: list[Any]) -> tuple[np.ndarray, Groups]:
    """Return the rows of all bags and the bags as groups; raise an error if they have different columns or no rows."""
    tables = [bag.numpy(force=True) if isinstance(bag, Tensor) else bag for bag in bags]
    for number, table in enumerate(tables):
        if len(table) == 0:
            raise ValueError(f"bag {number} of X has no rows; leave out empty bags and their labels")
        if table.shape[1] != tables[0].shape[1]:
            raise ValueError(
                f"the bags of X must have the same columns, but bag {number} has {table.shape[1]} and bag 0 has "
                f"{tables[0].shape[1]}"
            )
    return np.concatenate(tables), Groups.from_sizes([len(table) for table in tables])


SHARES = (0.02, 0.05, 0.1, 0.2, 1.0)
"""Shares of the members of a group whose largest scores are averaged."""


def pool(rows: Tensor, groups: Groups) -> Tensor:
    """Compute the mean, minimum and maximum of each column in each group, float32, ``(groups, 3 columns)``."""
    groups = groups.to("cpu")
    # In float32, rounding would make the mean of a constant column vary, and scaling would enlarge the differences.
    members = groups.gather(rows.cpu()).double()
    return torch.cat(
        [torch.segment_reduce(members, kind, lengths=groups.sizes) for kind in ("mean", "min", "max")], 1
    ).float()


def pool_scores(scores: Tensor, segments: Segments) -> Tensor:
    """Compute the means of the largest scores of each group, float32, ``(groups, shares)``; a score per membership."""
    tops = [select_top(scores, segments, share) for share in SHARES]
    means = [segments.sum(torch.where(top, scores, 0)) / segments.sum(top.long()) for top in tops]
    return torch.stack(means, 1).float()


def select_top(scores: Tensor, segments: Segments, share: float) -> Tensor:
    """Return a flag for a share of the members of each group, at least one, with the largest scores."""
    order = torch.from_numpy(np.lexsort((-scores.numpy(), segments.index.numpy())))
    rank = torch.arange(len(order)) - segments.expand(segments.offsets[:-1])
    chosen = rank < segments.expand((share * segments.sizes).round().clamp_min(1))
    return torch.zeros(len(order), dtype=torch.bool).index_copy_(0, order, chosen)
