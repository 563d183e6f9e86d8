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


class CountBox(NamedTuple):
    """All count vectors up to a largest count for each column."""

    lattice: Lattice
    outcomes: dict[int, Tensor]  # the outcome of a state is its number in its level
    strides: Tensor  # (columns,), to compute the number of a count vector in the box
    number_in_level: Tensor  # (states of the box,)


@lru_cache(maxsize=256)
def make_count_box(largest: tuple[int, ...], device: torch.device) -> CountBox:
    """Arrange the count vectors of a box by their sum."""
    shape = np.array(largest) + 1
    n_states = int(shape.prod())
    counts = np.indices(tuple(shape)).reshape(len(shape), n_states)  # (columns, states)
    strides = np.append(shape[:0:-1].cumprod()[::-1], 1).astype(np.int64)
    level = counts.sum(0)
    widths = np.bincount(level)
    by_level = np.argsort(level, kind="stable")
    number_in_level = np.empty(n_states, dtype=np.int64)
    number_in_level[by_level] = np.arange(n_states) - np.repeat(widths.cumsum() - widths, widths)
    full = counts == np.array(largest)[:, None]
    following = np.minimum(np.arange(n_states) + strides[:, None], n_states - 1)  # clipped only where full
    moves = np.where(full, np.append(widths, 0)[level + 1], number_in_level[following]).T[by_level]  # (states, columns)
    levels = torch.from_numpy(np.ascontiguousarray(moves)).to(device).split(widths.tolist())
    return CountBox(
        Lattice(levels[:-1], widths.tolist()),
        {level: torch.arange(width, device=device) for level, width in enumerate(widths)},
        torch.from_numpy(strides).to(device),
        torch.from_numpy(number_in_level).to(device),
    )


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
    box = make_count_box(largest, log_probs.device)
    log_weights = log_probs.gather(1, segments.expand(columns)).double()
    log_weights = log_weights.masked_fill_(segments.expand(counts == 0), float("-inf"))
    wanted = box.number_in_level[(counts * box.strides).sum(1)]
    log_total, shares = infer(log_weights, segments, box.lattice, Accept(box.outcomes, wanted))
    posterior = torch.zeros_like(log_probs, dtype=torch.float64).scatter_add_(1, segments.expand(columns), shares)
    return log_total, posterior


class CountSimplex(NamedTuple):
    """All count vectors with a sum of at most m, up to a largest count for each column."""

    lattice: Lattice
    counts: dict[int, Tensor]  # (states of the level, columns)


@lru_cache(maxsize=64)
def make_count_simplex(largest: tuple[int, ...], m: int, device: torch.device) -> CountSimplex:
    """Arrange the count vectors by their sum."""
    k = len(largest)
    levels, moves = [np.zeros((1, k), dtype=np.int64)], []
    for _ in range(m):
        following = levels[-1][:, None] + np.eye(k, dtype=np.int64)  # (states, moves, columns)
        allowed = (following <= largest).all(2)
        distinct, number = np.unique(following[allowed], axis=0, return_inverse=True)
        table = np.full(allowed.shape, len(distinct))
        table[allowed] = number.ravel()
        levels.append(distinct)
        moves.append(torch.from_numpy(table).to(device))
    counts = {level: torch.from_numpy(states).to(device) for level, states in enumerate(levels)}
    return CountSimplex(Lattice(moves, [len(states) for states in levels]), counts)


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
    simplex = make_count_simplex(largest, segments.max_size, log_probs.device)
    classes = segments.expand(columns)
    accept = WeighCounts(simplex.counts, log_weights)
    log_total, shares = forward_backward(log_probs.gather(1, classes), segments, simplex.lattice, accept)
    return log_total, torch.zeros_like(log_probs, dtype=torch.float64).scatter_(1, classes, shares)
