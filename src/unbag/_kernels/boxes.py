"""Which groups of different counts run side by side, and how: least work, as far as a greedy search finds it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Measured on a processor, in units of one point of one member of a transform: what a transform costs beside its points,
# what each member read costs on the lattice of count states, and what a move does there.
PER_TRANSFORM, PER_LEVEL, PER_MOVE = 2**15, 2**14, 3


class Box(NamedTuple):
    """Groups that run side by side."""

    which: Tensor  # (groups,), their numbers
    largest: tuple[int, ...]  # the largest count of each class in ascending order, without those that do not occur
    by_transform: bool  # or else by count states


def boxes(z: Tensor, size: int) -> list[Box]:
    """Put groups of similar counts into a box that holds them all where that costs less than boxes of their own.

    Parameters
    ----------
    z
        Counts, (groups, classes), each row in ascending order.
    size
        The size of the largest group.

    Examples
    --------
    >>> boxes(torch.tensor([[1, 3, 4], [0, 2, 6], [2, 2, 4]]), 8)
    [Box(which=tensor([0, 1, 2]), largest=(2, 3, 6), by_transform=True)]
    """
    kinds, kind_of_group, n_groups = (
        one.cpu().numpy() for one in z.long().unique(dim=0, return_inverse=True, return_counts=True)
    )
    cost = _costs(kinds, n_groups, size).min(0)
    bounds, groups_in, cost_of = kinds[:0], n_groups[:0], cost[:0]
    box_of_kind = np.empty(len(kinds), dtype=np.int64)
    for kind in cost.argsort()[::-1]:
        joined, together = np.maximum(bounds, kinds[kind]), groups_in + n_groups[kind]
        cost_joined = _costs(joined, together, size).min(0)
        extra = cost_joined - cost_of - cost[kind]
        if len(bounds) and extra.min() < 0:
            best = box_of_kind[kind] = extra.argmin()
            bounds[best], groups_in[best], cost_of[best] = joined[best], together[best], cost_joined[best]
        else:
            box_of_kind[kind] = len(bounds)
            bounds = np.concatenate([bounds, kinds[kind, None]])
            groups_in, cost_of = np.append(groups_in, n_groups[kind]), np.append(cost_of, cost[kind])
    by_transform, by_states = _costs(bounds, groups_in, size)
    box_of_group = torch.from_numpy(box_of_kind[kind_of_group]).to(z.device)
    return [
        Box((box_of_group == number).nonzero().flatten(), tuple(n for n in largest if n), bool(transform))
        for number, (largest, transform) in enumerate(zip(bounds.tolist(), by_transform <= by_states, strict=True))
    ]


def _costs(largest: np.ndarray, n_groups: np.ndarray, size: int) -> np.ndarray:
    """Return the cost of boxes by transform and by count states, (2, boxes), from (boxes, classes) and (boxes,)."""
    least = np.where(largest > 0, largest, np.iinfo(largest.dtype).max).min(1)
    n_states, n_present = (largest + 1.0).prod(1), (largest > 0).sum(1)
    by_transform = PER_TRANSFORM + size * n_groups * n_states / (2 * (least + 1.0))
    return np.stack([by_transform, PER_LEVEL * size + PER_MOVE * n_groups * n_states * n_present])
