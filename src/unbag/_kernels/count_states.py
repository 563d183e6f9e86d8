"""Counts of several classes, exactly: a state is the number of members of each class among those read so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.lattice import Accept, Lattice, forward_backward
from unbag._kernels.segments import Segments


class CountLattice(NamedTuple):
    """All count vectors with a sum of at most m, up to a largest count for each column."""

    lattice: Lattice
    counts: dict[int, Tensor]  # (states of the level, columns)
    codes: dict[int, Tensor]  # (states of the level,), which identify count vectors: the sum of counts times ``code``
    code: Tensor  # (columns,)


@lru_cache(maxsize=256)
def make_count_lattice(largest: tuple[int, ...], m: int, device: torch.device) -> CountLattice:
    """Arrange the count vectors by their sum."""
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
    codes = {level: torch.from_numpy(states @ code).to(device) for level, states in enumerate(levels)}
    lattice = Lattice(moves, [len(states) for states in levels])
    return CountLattice(lattice, counts, codes, torch.from_numpy(code).to(device))


def infer_counts(
    log_probs: Tensor,
    segments: Segments,
    columns: Tensor,
    counts: Tensor,
    largest: tuple[int, ...],
    *,
    infer: Callable[[Tensor, Segments, Lattice, Accept], tuple[Tensor, Tensor]] = forward_backward,
) -> tuple[Tensor, Tensor]:
    """Compute the log-probability of counts and the posterior of each membership.

    Parameters
    ----------
    columns
        The classes that are counted in each group, (groups, columns). A class may have several columns, which are
        counted separately.
    counts
        Number of members of each column, (groups, columns), which sum to the size of the group.
    largest
        Largest count of each column in any group.
    infer
        The forward-backward pass.
    """
    vectors = make_count_lattice(largest, min(sum(largest), segments.max_size), log_probs.device)
    classes = segments.expand(columns)
    log_weights = log_probs.gather(1, classes).double().masked_fill_(segments.expand(counts == 0), float("-inf"))
    accept = Accept(vectors.codes, (counts * vectors.code).sum(1))
    log_total, shares = infer(log_weights, segments, vectors.lattice, accept)
    return log_total, torch.zeros_like(log_probs, dtype=torch.float64).scatter_add_(1, classes, shares)


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
    log_probs: Tensor, segments: Segments, columns: Tensor, log_weights: Tensor, largest: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Compute the log of the sum of weights times probabilities and each membership's posterior.

    ``columns`` are the classes that may occur in each group, (groups, columns), ``log_weights`` those of the counts of
    these columns, and ``largest`` upper bounds of the counts with a weight.
    """
    vectors = make_count_lattice(largest, segments.max_size, log_probs.device)
    classes = segments.expand(columns)
    accept = WeighCounts(vectors.counts, log_weights)
    log_total, shares = forward_backward(log_probs.gather(1, classes), segments, vectors.lattice, accept)
    return log_total, torch.zeros_like(log_probs, dtype=torch.float64).scatter_(1, classes, shares)
