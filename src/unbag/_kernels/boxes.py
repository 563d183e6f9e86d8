"""Batches of groups with similar counts, and the method for each, by a greedy search for the lowest cost."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Measured on a CPU, in units of one point of one member of a transform: the constant cost of a transform, and of one
# level and one move on the lattice of count states.
PER_TRANSFORM, PER_LEVEL, PER_MOVE = 2**15, 2**14, 3


class Box(NamedTuple):
    """Groups that are computed together."""

    which: Tensor  # (groups,), their numbers
    largest: tuple[int, ...]  # the largest count of each class in ascending order, without those that do not occur
    by_transform: bool  # instead of count states


def boxes(z: Tensor, size: int) -> list[Box]:
    """Combine groups of similar counts into boxes that contain the counts of all, where that lowers the cost.

    Each row of the counts, (groups, classes), is in ascending order; ``size`` is that of the largest group.
    """
    distinct, inverse, n_groups = (
        table.cpu().numpy() for table in z.long().unique(dim=0, return_inverse=True, return_counts=True)
    )
    cost = _compute_costs(distinct, n_groups, size).min(0)
    largest, n_in_box, box_cost = distinct[:0], n_groups[:0], cost[:0]
    box_number = np.empty(len(distinct), dtype=np.int64)
    for row in cost.argsort()[::-1]:
        joined, n_joined = np.maximum(largest, distinct[row]), n_in_box + n_groups[row]
        joined_cost = _compute_costs(joined, n_joined, size).min(0)
        extra = joined_cost - box_cost - cost[row]
        if len(largest) and extra.min() < 0:
            best = box_number[row] = extra.argmin()
            largest[best], n_in_box[best], box_cost[best] = joined[best], n_joined[best], joined_cost[best]
        else:
            box_number[row] = len(largest)
            largest = np.concatenate([largest, distinct[row, None]])
            n_in_box, box_cost = np.append(n_in_box, n_groups[row]), np.append(box_cost, cost[row])
    transform_cost, state_cost = _compute_costs(largest, n_in_box, size)
    box_of_group = torch.from_numpy(box_number[inverse]).to(z.device)
    return [
        Box((box_of_group == number).nonzero().flatten(), tuple(n for n in counts if n), bool(by_transform))
        for number, (counts, by_transform) in enumerate(
            zip(largest.tolist(), transform_cost <= state_cost, strict=True)
        )
    ]


def _compute_costs(largest: np.ndarray, n_groups: np.ndarray, size: int) -> np.ndarray:
    """Return the costs of boxes by transform and by count states, (2, boxes), from (boxes, classes) and (boxes,)."""
    smallest = np.where(largest > 0, largest, np.iinfo(largest.dtype).max).min(1)
    n_states, n_present = (largest + 1.0).prod(1), (largest > 0).sum(1)
    by_transform = PER_TRANSFORM + size * n_groups * n_states / (2 * (smallest + 1.0))
    return np.stack([by_transform, PER_LEVEL * size + PER_MOVE * n_groups * n_states * n_present])
