"""Counts of several classes, exactly: a state is how many members of each class have been met so far."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.lattice import Accept, Lattice, forward_backward
from unbag._kernels.segments import Segments


class Box(NamedTuple):
    """All count vectors up to a largest count for each column."""

    lattice: Lattice
    outcomes: dict[int, Tensor]  # a state is its own outcome
    strides: Tensor  # (columns,), number of a count vector among all of the box
    place: Tensor  # (states of the box,), its number among those of its level


@lru_cache(maxsize=256)
def box(largest: tuple[int, ...], device: torch.device) -> Box:
    """Lay out the count vectors of a box by their sum."""
    shape = np.array(largest) + 1
    n_states = int(shape.prod())
    counts = np.indices(tuple(shape)).reshape(len(shape), n_states)  # (columns, states)
    strides = np.append(shape[:0:-1].cumprod()[::-1], 1).astype(np.int64)
    level = counts.sum(0)
    widths = np.bincount(level)
    by_level = np.argsort(level, kind="stable")
    place = np.empty(n_states, dtype=np.int64)
    place[by_level] = np.arange(n_states) - np.repeat(widths.cumsum() - widths, widths)
    full = counts == np.array(largest)[:, None]
    following = np.minimum(np.arange(n_states) + strides[:, None], n_states - 1)  # clipped only where full
    moves = np.where(full, np.append(widths, 0)[level + 1], place[following]).T[by_level]  # (states, columns)
    levels = torch.from_numpy(np.ascontiguousarray(moves)).to(device).split(widths.tolist())
    return Box(
        Lattice(levels[:-1], widths.tolist()),
        {level: torch.arange(width, device=device) for level, width in enumerate(widths)},
        torch.from_numpy(strides).to(device),
        torch.from_numpy(place).to(device),
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
    """Return the log-probability of counts and the posterior of each membership, in float64.

    Parameters
    ----------
    log_probs
        (memberships, k).
    segments
        The memberships of each group.
    columns
        The classes that are counted in each group, (groups, columns); a class may have several columns, which are
        then counted apart.
    counts
        How many members go to each column, (groups, columns), adding up to the size of the group.
    largest
        The box in which all counts of these groups lie.
    infer
        How to walk through the box.
    """
    states = box(largest, log_probs.device)
    log_weights = log_probs.gather(1, segments.expand(columns)).double()
    log_weights = log_weights.masked_fill_(segments.expand(counts == 0), float("-inf"))
    wanted = states.place[(counts * states.strides).sum(1)]
    log_total, shares = infer(log_weights, segments, states.lattice, Accept(states.outcomes, wanted))
    posterior = torch.zeros_like(log_probs, dtype=torch.float64).scatter_add_(1, segments.expand(columns), shares)
    return log_total, posterior
