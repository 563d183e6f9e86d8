"""Sums over all label vectors that lead to an observation, by a forward-backward pass over states.

A lattice has a level for each number of members read so far. A level holds the states that labels can reach, and for
each state the state of the next level that each move leads to. A move is one label, or several labels that lead to the
same states. Groups are read in parallel, larger ones first: after ``t`` members, the groups with members left are the
first ones of the batch, and no group is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unbag._kernels.logspace import normalise
from unbag._kernels.segments import Segments

# Maximum number of bytes of the states of all levels of a chunk of groups.
CHUNK_BYTES = 2**27


def safe_total(dtype: torch.dtype) -> float:
    """Return the sum of products of probabilities above which underflow has no effect on the result."""
    return 1e-30 if dtype == torch.float32 else 1e-250


@dataclass(frozen=True, eq=False)
class Lattice:
    """States by the number of members read, and the moves between them."""

    moves: Sequence[Tensor]
    """``moves[t]``, (states at t, moves): the state at t + 1, or the number of states at t + 1 if there is none."""
    widths: Sequence[int]
    """``widths[t]``: the number of states after t members; one more entry than moves."""

    def bytes_per_group(self, depth: int) -> int:
        """Return the memory of a pass for a group of this size."""
        return 8 * max(1, sum(self.widths[:depth])) * self.moves[0].shape[1]


@dataclass(frozen=True, eq=False)
class Accept:
    """Final states of groups: those whose outcome is the observed one."""

    outcomes: Mapping[int, Tensor]
    """``outcomes[t]``, (states at t,): the outcome of each final state, for each level where a group ends."""
    wanted: Tensor
    """The observed outcome of each group, shape (groups,)."""

    def take(self, which: Tensor) -> Accept:
        """Select groups."""
        return replace(self, wanted=self.wanted[which])

    def fill(self, weights: Tensor, level: int, groups: Tensor, accepted: float) -> None:
        """Write the weight ``accepted`` into the final states of these groups, (states, groups)."""
        weights.masked_fill_(self.outcomes[level][:, None] == self.wanted[groups], accepted)


def forward_backward(
    log_weights: Tensor, segments: Segments, lattice: Lattice, accept: Accept
) -> tuple[Tensor, Tensor]:
    """Sum the weights of all paths to an accepted state, and compute the share of each move.

    Log-weights and shares belong to the moves of each membership, (memberships, moves). The log of the sum of a group
    is ``-inf`` where no path is possible. The lattice is at least as deep as the largest group.
    """
    log_weights = log_weights.double()
    per_group = lattice.bytes_per_group(segments.max_size)
    if len(segments) > 1 and per_group * len(segments) > CHUNK_BYTES:
        results = []
        for which in torch.arange(len(segments), device=segments.device).split(max(1, CHUNK_BYTES // per_group)):
            entries, selected = segments.take(which)
            results.append(forward_backward(log_weights[entries], selected, lattice, accept.take(which)))
        totals, of_moves = zip(*results, strict=True)
        return torch.cat(totals), torch.cat(of_moves)
    log_scale, weights = normalise(log_weights)
    scale = segments.sum(log_scale)
    total, shares = _sum_product(weights.nan_to_num(0.0), Walk.create(segments, lattice, accept))
    log_total = total.log() + scale
    if bool((lost := (total < safe_total(total.dtype)) & (scale > float("-inf"))).any()):
        # Log space has no underflow, at several times the cost.
        groups, rows = lost.nonzero().flatten(), segments.expand(lost)
        walk = Walk.create(Segments.from_sizes(segments.sizes[groups]), lattice, accept.take(groups))
        log_total[groups], shares[rows] = _log_sum_product(log_weights[rows], walk)
    return log_total, shares


def forward_backward_in_log_space(
    log_weights: Tensor, segments: Segments, lattice: Lattice, accept: Accept
) -> tuple[Tensor, Tensor]:
    """Compute :func:`forward_backward` in log space only, for all groups at once, without device synchronisation."""
    return _log_sum_product(log_weights.double(), Walk.create(segments, lattice, accept))


@dataclass(frozen=True, eq=False)
class Walk:
    """A pass of groups through a lattice: all first members are read, then all second members, and so on."""

    lattice: Lattice
    accept: Accept
    order: Tensor  # (groups,), larger groups first
    reading: Tensor  # (memberships,), in the order of reading
    active: list[int]  # the number of groups with a member to read at each step

    @classmethod
    def create(cls, segments: Segments, lattice: Lattice, accept: Accept) -> Walk:
        """Sort groups and memberships."""
        if (size := segments.uniform_size) is not None:
            order = torch.arange(len(segments), device=segments.device)
            reading = torch.arange(segments.total, device=segments.device).view(-1, size).t().flatten()
            return cls(lattice, accept, order, reading, [len(segments)] * size)
        order = segments.sizes.argsort(descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        position = torch.arange(segments.total, device=segments.device) - segments.expand(segments.offsets[:-1])
        reading = (position * len(segments) + segments.expand(rank)).argsort()
        return cls(lattice, accept, order, reading, torch.bincount(position).tolist())

    def forward_step(self, t: int, paths: Tensor) -> Tensor:
        """Sum paths by the state after step t: (states, moves, groups) to (states at t + 1, groups)."""
        sums = paths.new_zeros(self.lattice.widths[t + 1] + 1, paths.shape[2])  # the last row: moves without a state
        return sums.index_add_(0, self.lattice.moves[t].flatten(), paths.flatten(0, 1))[:-1]

    def backward_message(self, t: int, backward: Tensor, rejected: float, accepted: float) -> Tensor:
        """Compute the weight of all continuations of each move of step t: (states, moves, active groups).

        ``backward`` holds the weights of the states at t + 1 for the groups that continue, (states, groups). The other
        active groups end there, with the weight ``accepted`` or ``rejected``.
        """
        n_continued, active = backward.shape[1], self.active[t]
        after = backward.new_full((self.lattice.widths[t + 1] + 1, active), rejected)
        after[:-1, :n_continued] = backward
        if n_continued < active:
            self.accept.fill(after[:-1, n_continued:], t + 1, self.order[n_continued:active], accepted)
        moves = self.lattice.moves[t]
        return after.index_select(0, moves.flatten()).view(*moves.shape, active)

    def to_input_order(self, total: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Sort results in the order of reading by group and membership."""
        by_group = torch.empty_like(total).scatter_(0, self.order, total)
        by_membership = torch.empty_like(taken.t()).index_copy_(0, self.reading, taken.t())
        return by_group, by_membership


def _sum_product(weights: Tensor, walk: Walk) -> tuple[Tensor, Tensor]:
    depth = len(walk.active)
    read = weights[walk.reading].t().contiguous().split(walk.active, 1)  # a (moves, active groups) for each step
    forward = [weights.new_ones(1, walk.active[0])]  # (states, active groups) for each level
    for t in range(depth - 1):
        forward.append(walk.forward_step(t, forward[t][:, None] * read[t])[:, : walk.active[t + 1]])
    taken = []
    backward = weights.new_empty(walk.lattice.widths[depth], 0)
    for t in reversed(range(depth)):
        backward_message = walk.backward_message(t, backward, 0.0, 1.0)  # (states, moves, active groups)
        taken.append((backward_message * forward[t][:, None]).sum(0) * read[t])
        backward = (backward_message * read[t]).sum(1)
    total = backward[0]
    shares = torch.cat(taken[::-1], 1) / torch.cat([total[:active] for active in walk.active])
    return walk.to_input_order(total, shares)


def _log_sum_product(log_weights: Tensor, walk: Walk) -> tuple[Tensor, Tensor]:
    """Compute backward weights in log space, then the probabilities of moves in a forward pass."""
    depth = len(walk.active)
    read = log_weights[walk.reading].t().contiguous().split(walk.active, 1)
    probs = []  # of the moves from each state, (states, moves, active groups), the last level first
    backward = log_weights.new_empty(walk.lattice.widths[depth], 0)
    for t in reversed(range(depth)):
        backward_message = walk.backward_message(t, backward, float("-inf"), 0.0)
        backward, move_probs = normalise(backward_message + read[t], dim=1)
        probs.append(move_probs.nan_to_num_(0.0))
    taken = []
    state_probs = log_weights.new_ones(1, walk.active[0])  # given the observation, (states, groups)
    for t in range(depth):
        paths = state_probs[:, None, : walk.active[t]] * probs.pop()
        taken.append(paths.sum(0))
        state_probs = walk.forward_step(t, paths)
    return walk.to_input_order(backward[0], torch.cat(taken, 1))
