"""Groups of about one size side by side: dense tables for kernels that see all members of a group at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unbag._kernels.assignments import can_be_assigned
from unbag._kernels.segments import Segments

# Numbers that the members of one block of groups may take.
BLOCK = 2**18
# Segments of one block differ in size by less than this factor, so that little of it is padding.
ALIKE = 1.25

InferBlock = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
"""From scores (groups, classes, members), weights (groups, members) and counts (groups, classes) to the log-probability
of the counts and the posterior, (groups, classes, members).

Scores are ``-inf`` for a class that does not occur. Weights are 0 for padding and 1 for members; None where nothing is
padded. Classes are in ascending order of their counts. The counts can be made."""


class Block(NamedTuple):
    """Groups side by side."""

    which: Tensor  # (groups,), their numbers
    rows: Tensor  # (groups, members), the membership in each place; padding repeats one
    weights: Tensor | None  # (groups, members), 0 for padding, else 1; None where nothing is padded


def infer_in_blocks(log_probs: Tensor, segments: Segments, z: Tensor, infer_block: InferBlock) -> tuple[Tensor, Tensor]:
    """Return the log-probability of counts and each membership's posterior, in float64, block after block.

    Parameters
    ----------
    log_probs
        (memberships, k).
    segments
        The memberships of each group.
    z
        Counts, (groups, k), adding up to the size of the group.
    infer_block
        What to do with a block.

    Returns
    -------
    log_total
        (groups,), ``-inf`` where log-probabilities of ``-inf`` leave no way to make the counts.
    posterior
        (memberships, k).
    """
    n = len(log_probs)
    by_class = log_probs.t().reshape(-1)
    log_total = torch.empty(len(segments), dtype=torch.float64, device=z.device)
    posterior = torch.zeros(n * z.shape[1], dtype=torch.float64, device=z.device)
    for which, rows, weights in blocks(segments, z.shape[1], BLOCK):
        counts, classes = z[which].sort(1)
        n_present = int((counts > 0).sum(1).max())
        counts, classes = counts[:, -n_present:].double(), classes[:, -n_present:]
        cells = torch.add(rows[:, None], classes[:, :, None], alpha=n)  # (groups, present classes, members)
        scores = by_class[cells].double()
        scores.masked_fill_((counts == 0)[:, :, None], float("-inf"))
        possible = can_be_assigned(scores, weights, counts)
        if not bool(possible.all()):
            scores.masked_fill_(~possible[:, None, None], 0.0)
        of_groups, probs = infer_block(scores, weights, counts)
        log_total[which] = of_groups.masked_fill(~possible, float("-inf"))
        posterior[cells.flatten()] = probs.flatten()  # padding writes what its member has
    return log_total, posterior.view(-1, n).t()


def blocks(segments: Segments, per_member: int, most: int) -> Iterator[Block]:
    """Put groups of about one size into dense blocks of so many numbers at most, or of a single group."""
    sizes, order = segments.sizes.sort()
    ends = sizes.tolist()
    first = 0
    while first < len(order):
        alike = bisect_right(ends, ALIKE * ends[first])
        last = bisect_right(
            range(alike), most // per_member, first + 1, key=lambda last: (last + 1 - first) * ends[last]
        )
        which, width = order[first:last], ends[last - 1]
        place = torch.arange(width, device=order.device)
        real = place < sizes[first:last, None]
        rows = segments.offsets[which][:, None] + place * real
        yield Block(which, rows, None if ends[first] == width else real.double())
        first = last
