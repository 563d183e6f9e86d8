"""Blocks of groups of similar size: dense tables for kernels that need all members of a group at once."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.segments import Segments

# Maximum number of values of a block.
BLOCK = 2**18
# Maximum ratio of sizes in a block, which limits padding.
MAX_RATIO = 1.25

InferBlock = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor]]
"""From scores (groups, classes, members), weights (groups, members) and counts (groups, classes) to the log-probability
of the counts and the posterior, (groups, classes, members).

Scores are ``-inf`` for a class that does not occur. Weights are 0 for padding and 1 for members; None without padding.
Classes are in ascending order of their counts. The counts are possible."""


class Block(NamedTuple):
    """Groups of similar size."""

    which: Tensor  # (groups,), their numbers
    rows: Tensor  # (groups, members), the membership at each position; padding repeats the first
    weights: Tensor | None  # (groups, members), 0 for padding, else 1; None without padding


def infer_in_blocks(log_probs: Tensor, segments: Segments, z: Tensor, infer_block: InferBlock) -> tuple[Tensor, Tensor]:
    """Compute the log-probability of counts and each membership's posterior, block by block.

    The log-probability is ``-inf`` where log-probabilities of ``-inf`` make the counts impossible.
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
        block_total, probs = infer_block(scores, weights, counts)
        log_total[which] = block_total.masked_fill(~possible, float("-inf"))
        posterior[cells.flatten()] = probs.flatten()  # padding writes the value of its member
    return log_total, posterior.view(-1, n).t()


def blocks(segments: Segments, per_member: int, max_values: int) -> Iterator[Block]:
    """Combine groups of similar size into blocks of at most ``max_values`` numbers, or of a single group."""
    sizes, order = segments.sizes.sort()
    ends = sizes.tolist()
    first = 0
    while first < len(order):
        similar = range(bisect_right(ends, MAX_RATIO * ends[first]))
        max_rows = max_values // per_member
        last = bisect_right(similar, max_rows, first + 1, key=lambda last: (last + 1 - first) * ends[last])
        which, width = order[first:last], ends[last - 1]
        position = torch.arange(width, device=order.device)
        real = position < sizes[first:last, None]
        rows = segments.offsets[which][:, None] + position * real
        yield Block(which, rows, None if ends[first] == width else real.double())
        first = last


def can_be_assigned(scores: Tensor, weights: Tensor | None, z: Tensor) -> Tensor:
    """Return whether the members of each group can be assigned to possible classes with counts z.

    Scores, (groups, classes, members), are ``-inf`` where a member cannot be of a class.
    """
    feasible = torch.ones(len(z), dtype=torch.bool, device=z.device)
    excluded = (scores.amin(2) == float("-inf")) & (z > 0)
    # Any assignment is possible unless some member excludes a class that occurs.
    for group in excluded.any(1).nonzero().flatten().tolist():
        allowed = scores[group] > float("-inf")
        allowed = allowed if weights is None else allowed[:, weights[group] > 0]
        members = allowed.t().cpu().numpy()
        feasible[group] = _maximum_flow(members, z[group].cpu().numpy().astype(np.int32)) == len(members)
    return feasible


def _maximum_flow(allowed: np.ndarray, z: np.ndarray) -> int:
    """Return how many members, (members, classes), can be assigned; members with equal choices are one node."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (rarely needed, takes a quarter of a second)
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    choices, members = np.unique(allowed, axis=0, return_counts=True)
    n_choices, k = choices.shape
    source, sink = n_choices + k, n_choices + k + 1
    capacity = np.zeros((sink + 1, sink + 1), dtype=np.int32)
    capacity[source, :n_choices] = members
    capacity[:n_choices, n_choices:source] = np.where(choices, members[:, None], 0)
    capacity[n_choices:source, sink] = z
    return int(maximum_flow(csr_array(capacity), source, sink).flow_value)
