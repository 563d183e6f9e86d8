"""Sums over all label vectors that lead to an observation, by a forward-backward pass over states.

A lattice has one level for every number of members read so far. A level holds the states that labels can reach, and
for every state the state of the next level that each move leads to. A move is one label or several labels that lead
to the same states. Groups are read side by side, larger ones first, so that after ``t`` members the groups that still
go on are a leading slice of the batch and no group is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unbag._kernels.logspace import normalise
from unbag._kernels.segments import Segments

# Bytes that the states of all levels of one chunk of groups may take.
CHUNK_BYTES = 2**27


def safe_total(dtype: torch.dtype) -> float:
    """Return what a sum of products of probabilities must exceed to have lost nothing that matters to underflow."""
    return 1e-30 if dtype == torch.float32 else 1e-250


@dataclass(frozen=True, eq=False)
class Lattice:
    """States by number of members read, and the moves between them."""

    moves: Sequence[Tensor]
    """``moves[t]``, (states at t, moves): the state at t + 1; the number of states there where there is none."""
    widths: Sequence[int]
    """``widths[t]``: number of states after t members; one more entry than moves."""

    def bytes_per_group(self, depth: int) -> int:
        """Memory that one group of this size takes in a pass."""
        return 8 * max(1, sum(self.widths[:depth])) * self.moves[0].shape[1]


@dataclass(frozen=True, eq=False)
class Steps:
    """Memberships in the order in which they are read: all first members, then all second ones, and so on."""

    order: Tensor  # (groups,), larger groups first
    reading: Tensor  # (memberships,), the membership that is read next
    active: list[int]  # how many groups have a member to read at each step

    @classmethod
    def of(cls, segments: Segments) -> Steps:
        """Lay out the groups for reading."""
        if (size := segments.uniform_size) is not None:
            order = torch.arange(len(segments), device=segments.device)
            reading = torch.arange(segments.total, device=segments.device).view(-1, size).t().flatten()
            return cls(order, reading, [len(segments)] * size)
        order = segments.sizes.argsort(descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        position = torch.arange(segments.total, device=segments.device) - segments.expand(segments.offsets[:-1])
        reading = (position * len(segments) + segments.expand(rank)).argsort()
        return cls(order, reading, torch.bincount(position).tolist())


@dataclass(frozen=True, eq=False)
class Accept:
    """The states in which a group may end: those with the outcome that was observed."""

    outcomes: Mapping[int, Tensor]
    """``outcomes[t]``, (states at t,): what each state would be observed as, for each level where a group ends."""
    wanted: Tensor
    """(groups,), the outcome that was observed."""

    def take(self, which: Tensor) -> Accept:
        """Return the same for some of the groups."""
        return replace(self, wanted=self.wanted[which])

    def ends(self, level: int, groups: Tensor) -> Tensor:
        """Whether these groups may end in each state of a level: (states, groups)."""
        return self.outcomes[level][:, None] == self.wanted[groups]

    def fill(self, weights: Tensor, level: int, groups: Tensor, yes: float) -> None:
        """Write the weight ``yes`` wherever these groups may end, (states, groups)."""
        weights.masked_fill_(self.ends(level, groups), yes)


def forward_backward(
    log_weights: Tensor, segments: Segments, lattice: Lattice, accept: Accept
) -> tuple[Tensor, Tensor]:
    """Sum the weights of all paths that end in a wanted state, and say which moves they take.

    Parameters
    ----------
    log_weights
        Log-weight of each move of each membership, (memberships, moves).
    segments
        The memberships of each group.
    lattice
        Deep enough for the largest group.
    accept
        Which states a group may end in.

    Returns
    -------
    log_total
        (groups,), ``-inf`` where no path is possible.
    shares
        (memberships, moves), the share of the total that takes each move at each membership.
    """
    log_weights = log_weights.double()
    per_group = lattice.bytes_per_group(segments.max_size)
    if len(segments) > 1 and per_group * len(segments) > CHUNK_BYTES:
        return _in_chunks(log_weights, segments, lattice, accept, max(1, CHUNK_BYTES // per_group))
    log_scale, weights = normalise(log_weights)
    scale = segments.sum(log_scale)
    total, shares = _sum_product(weights.nan_to_num(0.0), Walk(Steps.of(segments), lattice, accept))
    log_total = total.log() + scale
    if bool((lost := (total < safe_total(total.dtype)) & (scale > float("-inf"))).any()):
        # Numbers in log space cannot get lost, at several times the cost.
        again = lost.nonzero().flatten()
        rows = segments.expand(lost)
        walk = Walk(Steps.of(Segments.from_sizes(segments.sizes[again])), lattice, accept.take(again))
        log_total[again], shares[rows] = _log_sum_product(log_weights[rows], walk)
    return log_total, shares


def forward_backward_in_log_space(
    log_weights: Tensor, segments: Segments, lattice: Lattice, accept: Accept
) -> tuple[Tensor, Tensor]:
    """Do the same without trying the fast way first, all groups at once, and without waiting for the device."""
    return _log_sum_product(log_weights.double(), Walk(Steps.of(segments), lattice, accept))


@dataclass(frozen=True, eq=False)
class Walk:
    """Groups on their way through a lattice."""

    steps: Steps
    lattice: Lattice
    accept: Accept

    def forward_step(self, t: int, paths: Tensor) -> Tensor:
        """Add up paths in the states that step t leads to: (states, moves, groups) to (states at t + 1, groups)."""
        arrived = paths.new_zeros(
            self.lattice.widths[t + 1] + 1, paths.shape[2]
        )  # the last row: moves that lead nowhere
        return arrived.index_add_(0, self.lattice.moves[t].flatten(), paths.flatten(0, 1))[:-1]

    def backward_message(self, t: int, backward: Tensor, no: float, yes: float) -> Tensor:
        """Weight of what follows each move of step t: (states, moves, active groups).

        ``backward`` holds that of the states at t + 1 for the groups that go on, (states, groups); the groups that end
        there may (weight ``yes``) or may not.
        """
        going_on, active = backward.shape[1], self.steps.active[t]
        after = backward.new_full((self.lattice.widths[t + 1] + 1, active), no)
        after[:-1, :going_on] = backward
        if going_on < active:
            self.accept.fill(after[:-1, going_on:], t + 1, self.steps.order[going_on:active], yes)
        moves = self.lattice.moves[t]
        return after.index_select(0, moves.flatten()).view(*moves.shape, active)

    def to_input_order(self, total: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Bring results from the order of reading back into the order of groups and memberships."""
        by_group = torch.empty_like(total).scatter_(0, self.steps.order, total)
        by_membership = torch.empty_like(taken.t()).index_copy_(0, self.steps.reading, taken.t())
        return by_group, by_membership


def _sum_product(weights: Tensor, walk: Walk) -> tuple[Tensor, Tensor]:
    steps = walk.steps
    depth = len(steps.active)
    read = weights[steps.reading].t().contiguous().split(steps.active, 1)  # a (moves, active groups) for each step
    forward = [weights.new_ones(1, steps.active[0])]  # (states, active groups) for each level
    for t in range(depth - 1):
        forward.append(walk.forward_step(t, forward[t][:, None] * read[t])[:, : steps.active[t + 1]])
    taken = []
    backward = weights.new_empty(walk.lattice.widths[depth], 0)
    for t in reversed(range(depth)):
        backward_message = walk.backward_message(t, backward, 0.0, 1.0)  # (states, moves, active groups)
        taken.append((backward_message * forward[t][:, None]).sum(0) * read[t])
        backward = (backward_message * read[t]).sum(1)
    total = backward[0]  # in the order of reading
    shares = torch.cat(taken[::-1], 1) / torch.cat([total[:active] for active in steps.active])
    return walk.to_input_order(total, shares)


def _log_sum_product(log_weights: Tensor, walk: Walk) -> tuple[Tensor, Tensor]:
    """Do the same in log space: weights of what is to come first, then the chances of each move given those."""
    steps = walk.steps
    depth = len(steps.active)
    read = log_weights[steps.reading].t().contiguous().split(steps.active, 1)
    chances = []  # of the moves from each state, (states, moves, active groups), the last level first
    backward = log_weights.new_empty(walk.lattice.widths[depth], 0)
    for t in reversed(range(depth)):
        backward_message = walk.backward_message(t, backward, float("-inf"), 0.0)
        backward, chance = normalise(backward_message + read[t], dim=1)
        chances.append(chance.nan_to_num_(0.0))
    taken = []
    here = log_weights.new_ones(1, steps.active[0])  # chance of each state given the observation, (states, groups)
    for t in range(depth):
        paths = here[:, None, : steps.active[t]] * chances.pop()
        taken.append(paths.sum(0))
        here = walk.forward_step(t, paths)
    return walk.to_input_order(backward[0], torch.cat(taken, 1))


def _in_chunks(
    log_weights: Tensor, segments: Segments, lattice: Lattice, accept: Accept, chunk: int
) -> tuple[Tensor, Tensor]:
    totals, shares = [], []
    for start in range(0, len(segments), chunk):
        which = torch.arange(start, min(start + chunk, len(segments)), device=segments.device)
        entries, some = segments.take(which)
        total, share = forward_backward(log_weights[entries], some, lattice, accept.take(which))
        totals.append(total)
        shares.append(share)
    return torch.cat(totals), torch.cat(shares)
