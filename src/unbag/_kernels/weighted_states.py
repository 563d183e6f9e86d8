"""Counts of several classes with weights, exactly: a forward-backward pass over count vectors up to m members."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.lattice import Accept, Lattice, forward_backward
from unbag._kernels.segments import Segments


class Simplex(NamedTuple):
    """All count vectors with a sum of at most m, and a largest count for each column."""

    lattice: Lattice
    counts: dict[int, Tensor]  # (states of the level, columns)


@lru_cache(maxsize=64)
def simplex(largest: tuple[int, ...], m: int, device: torch.device) -> Simplex:
    """Lay out the count vectors by their sum."""
    k = len(largest)
    levels, moves = [np.zeros((1, k), dtype=np.int64)], []
    for _ in range(m):
        following = levels[-1][:, None] + np.eye(k, dtype=np.int64)  # (states, moves, columns)
        fits = (following <= largest).all(2)
        distinct, number = np.unique(following[fits], axis=0, return_inverse=True)
        table = np.full(fits.shape, len(distinct))
        table[fits] = number.ravel()
        levels.append(distinct)
        moves.append(torch.from_numpy(table).to(device))
    counts = {level: torch.from_numpy(states).to(device) for level, states in enumerate(levels)}
    return Simplex(Lattice(moves, [len(states) for states in levels]), counts)


@dataclass(frozen=True, eq=False)
class WeighCounts(Accept):
    """States in which a group ends have weights: ``outcomes`` are their counts, ``wanted`` log-weights of counts."""

    def fill(self, weights: Tensor, level: int, groups: Tensor, yes: float) -> None:
        """Write the weights, or where those of a sure end are zero their logarithms, (states, groups)."""
        wanted = self.wanted[groups]  # (groups, columns, counts)
        log_weights = sum(wanted[:, column, count] for column, count in enumerate(self.outcomes[level].t()))
        assert isinstance(log_weights, Tensor)
        weights.copy_((log_weights if yes == 0.0 else log_weights.exp()).t())


def infer_weighted_states(
    log_probs: Tensor, segments: Segments, columns: Tensor, log_weights: Tensor, largest: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return the log of the sum of weights times probabilities and the posterior of each membership, in float64.

    Parameters
    ----------
    log_probs
        (memberships, k).
    segments
        The memberships of each group.
    columns
        The classes that may occur in each group, (groups, columns).
    log_weights
        Of the counts of these classes, (groups, columns, counts).
    largest
        The largest counts that have a weight, at least.
    """
    states = simplex(largest, segments.max_size, log_probs.device)
    of_columns = log_probs.gather(1, segments.expand(columns))
    log_total, shares = forward_backward(of_columns, segments, states.lattice, WeighCounts(states.counts, log_weights))
    posterior = torch.zeros_like(log_probs, dtype=torch.float64).scatter_(1, segments.expand(columns), shares)
    return log_total, posterior
