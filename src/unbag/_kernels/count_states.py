"""Counts of several classes, exactly: a state is the number of members of each class among those read so far."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.lattice import Accept, Lattice, forward_backward
from unbag._kernels.segments import Segments


@lru_cache(maxsize=256)
def make_count_lattice(largest: tuple[int, ...], m: int, device: torch.device) -> tuple[Lattice, dict[int, Tensor]]:
    """Arrange all count vectors with a sum of at most m, up to a largest count for each column, by their sum.

    The second result is the counts of each level, (states of the level, columns).
    """
    k = len(largest)
    # Random codes of 62 bits differ for all count vectors.
    code = np.random.default_rng(0).integers(2**62, size=k)
    levels, moves = [np.zeros((1, k), dtype=np.int64)], []
    for _ in range(m):
        allowed = levels[-1] < largest  # (states, columns)
        state, column = allowed.nonzero()
        reached = levels[-1][state]
        reached[np.arange(len(column)), column] += 1
        _, first, number = np.unique(reached @ code, return_index=True, return_inverse=True)
        table = np.full(allowed.shape, len(first))
        table[allowed] = number
        levels.append(reached[first])
        moves.append(torch.from_numpy(table).to(device))
    counts = {level: torch.from_numpy(states).to(device) for level, states in enumerate(levels)}
    return Lattice(moves, [len(states) for states in levels]), counts


@dataclass(frozen=True, eq=False)
class WeighCounts(Accept):
    """Weights of final states: ``outcomes`` are their counts, ``wanted`` the log-weights of counts of each group."""

    def fill(self, weights: Tensor, level: int, groups: Tensor, accepted: float) -> None:
        """Write the weights, or their logarithms where the weight of an accepted state is 0, (states, groups)."""
        wanted = self.wanted[groups]  # (groups, columns, counts)
        log_weights = sum(wanted[:, column, count] for column, count in enumerate(self.outcomes[level].t()))
        assert isinstance(log_weights, Tensor)
        weights.copy_((log_weights if accepted == 0.0 else log_weights.exp()).t())


def infer_weighted_states(
    log_probs: Tensor,
    segments: Segments,
    columns: Tensor,
    log_weights: Tensor,
    largest: tuple[int, ...],
    *,
    infer: Callable[[Tensor, Segments, Lattice, Accept], tuple[Tensor, Tensor]] = forward_backward,
) -> tuple[Tensor, Tensor]:
    """Compute the log of the sum of weights times probabilities and each membership's posterior.

    ``columns`` are the classes that may occur in each group, (groups, columns), ``log_weights`` those of the counts of
    these columns, and ``largest`` upper bounds of the counts with a weight. A class may have several columns, which are
    counted separately.
    """
    lattice, counts = make_count_lattice(largest, min(sum(largest), segments.max_size), log_probs.device)
    classes = segments.expand(columns)
    log_total, shares = infer(log_probs.gather(1, classes), segments, lattice, WeighCounts(counts, log_weights))
    return log_total, torch.zeros_like(log_probs, dtype=torch.float64).scatter_add_(1, classes, shares)


def weigh_exactly(counts: Tensor) -> Tensor:
    """Return the log-weights of exact counts, (groups, columns), for which only these have a weight."""
    equal = torch.arange(int(counts.max()) + 1, device=counts.device) == counts[..., None]
    return torch.zeros_like(equal, dtype=torch.float64).masked_fill_(~equal, float("-inf"))
