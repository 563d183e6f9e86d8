"""Which groups a step visits, and how their members reach the models.

The order of an epoch is a random permutation of the groups. Where rows are on disk, neighbouring rows are cut into
blocks of about 4 MiB, a group belongs to the block of its first row, blocks are drawn in random order, 128 at a time,
and the groups of these 128 are visited in random order before the next are drawn. So an epoch reads every block once,
half a GiB is enough to hold what it reads at a time, and a table of that size or less is visited in the same order as
one in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups
from unbag.training.processes import Processes, Share

BLOCKS_AT_ONCE = 128
"""Blocks of neighbouring rows whose groups are visited in random order among each other."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The groups that one step visits, of all replicas, one replica after the other."""

    rows: Tensor  # (replicas, n), rows of the table to run each replica on; the end may be padding
    place: Tensor | None  # (memberships,), where each membership is among all replicas' rows; None: in order
    memory: Tensor  # (memberships,), its number among those of the whole set and all replicas
    segments: Segments  # the memberships of each group
    z: Tensor  # of these groups
    weights: Tensor | None  # of these groups, 1 on average over the set; None: all the same
    n_groups: int  # of the step and all replicas, also those that rest and those of other processes
    replicas: slice | Tensor  # which of them these are

    def of_members(self, outputs: Tensor) -> Tensor:
        """Pick one row per membership: (replicas * n, width) to (memberships, width)."""
        return outputs.float() if self.place is None else outputs[self.place].float()

    def of_rows(self, slope: Tensor) -> Tensor:
        """Put one row per membership back where it was picked, with zeros for padding: to (replicas, n, width)."""
        if self.place is not None:
            slope = slope.new_zeros(self.rows.numel(), slope.shape[1]).index_copy_(0, self.place, slope)
        return slope.view(*self.rows.shape, -1)


class Batches:
    """A set of observations, cut anew into batches in every epoch, for each replica by its own random numbers.

    Parameters
    ----------
    observations
        One set that all replicas share, or one for each replica.
    n_replicas
        How many models are trained.
    n_steps
        Steps an epoch, whose batches differ by one group at most.
    n_visits
        How many groups an epoch visits; None: as many as there are, at most. All are visited before one is again.
    share
        What this process does of every step; None: all.
    rows_of_block
        How many neighbouring rows of a table on disk are a block; None: the rows are in memory.
    """

    order: Tensor
    """In which order each replica visits its groups in this epoch, (replicas, visits); changed in place."""
    rest: list[Tensor]
    """The groups that each replica has not visited yet when the epoch is over, in their order."""
    replicas: slice | Tensor
    """Which replicas have groups in a batch: those of this process, or fewer."""

    def __init__(
        self,
        observations: Sequence[Observations],
        n_replicas: int,
        n_steps: int,
        n_visits: int | None = None,
        *,
        share: Share | None = None,
        rows_of_block: int | None = None,
    ) -> None:
        self._share = share or Share.of(Processes(), n_replicas)
        self.replicas = self._share.replicas
        self.aggregate = observations[0].aggregate
        self.weight = observations[0].weight
        self.n_classes = observations[0].n_classes
        shared = len(observations) == 1
        self._n_groups = [len(one.groups) for one in observations] * (n_replicas if shared else 1)
        self.groups = Groups.from_offsets(
            torch.cat(
                [observations[0].groups.offsets[:1], torch.cat([one.groups.sizes for one in observations]).cumsum(0)]
            ),
            torch.cat([one.groups.members for one in observations]),
        )
        self.checked = torch.cat([self._checked(one) for one in observations])
        self.weights: Tensor | None = None
        if any(one.group_weights is not None for one in observations):
            self.weights = torch.cat([(one.weights / one.weights.mean()).float() for one in observations])
        self.n_replicas = n_replicas
        n_visits = max(self._n_groups) if n_visits is None else n_visits
        self._bounds = [n_visits * step // n_steps for step in range(n_steps + 1)]
        self._starts = torch.tensor(self._bounds, device=self.groups.device)
        replica = torch.arange(n_replicas, device=self.groups.device)[:, None]
        # Where a replica's groups begin among all, and where its memory of memberships does.
        before = torch.tensor([0, *self._n_groups[:-1]], device=self.groups.device).cumsum(0)[:, None]
        self._first_group = torch.zeros_like(replica) if shared else before
        self._first_memory = replica * len(self.groups.members) if shared else torch.zeros_like(replica)
        self.n_memberships = len(self.groups.members) * (n_replicas if shared else 1)
        self._replica = replica
        self._block: Tensor | None = None  # of each group
        if rows_of_block is not None:
            self._block = self.groups.members[self.groups.offsets[:-1]].cpu() // rows_of_block
        self._equal: dict[int, Segments] = {}
        self.order = torch.zeros(n_replicas, n_visits, dtype=torch.int64, device=self.groups.device)
        self.rest = [torch.zeros(0, dtype=torch.int64)] * n_replicas
        # Rows and memory, (replicas, groups, members), observations and weights, (replicas, groups, ...), of groups of
        # one size in the order in which they are visited.
        self._laid_out: list[Tensor] | None = None

    def _checked(self, one: Observations) -> Tensor:
        """Return observations as checked by the aggregate that reads them: another may number outcomes otherwise."""
        if one.aggregate is self.aggregate:
            return one.checked
        return self.aggregate.check(one.z, one.groups, self.n_classes)

    def shuffle(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the order of the groups for a new epoch, one of each replica."""
        n_visits = self.order.shape[1]
        orders = []
        for replica, (n, generator) in enumerate(zip(self._n_groups, generators, strict=True)):
            passes = [self.rest[replica]]
            first = int(self._first_group[replica])
            block = None if self._block is None else self._block[first : first + n]
            while sum(map(len, passes)) < n_visits:
                passes.append(draw_order(n, generator, block))
            order = torch.cat(passes)
            orders.append(order[:n_visits])
            self.rest[replica] = order[n_visits:].clone()
        self.set_order(torch.stack(orders))

    def set_order(self, order: Tensor) -> None:
        """Take the groups in this order from now on."""
        self.order.copy_(order)
        if (size := self.groups.uniform_size) is None or self._block is not None:
            return
        # Groups of one size are laid out for the whole epoch at once, so that a step need not look anything up; not so
        # those of rows on disk, which may be many.
        laid_out = self._lay_out(self.order, size)
        if self._laid_out is None:
            self._laid_out = laid_out
        else:  # in place: a captured graph reads from where it was
            for part, own in zip(self._laid_out, laid_out, strict=True):
                part.copy_(own)

    def _lay_out(self, order: Tensor, size: int) -> list[Tensor]:
        which = order + self._first_group  # (replicas, groups)
        number = which[:, :, None] * size + torch.arange(size, device=which.device)  # (replicas, groups, members)
        rows, z = self.groups.members[number], self.checked[which]
        memory = number.add_(self._first_memory[:, None])
        return [rows, memory, z, *([] if self.weights is None else [self.weights[which]])]

    def size(self, step: int) -> int:
        """Return how many groups of this set a step visits."""
        return self._bounds[step + 1] - self._bounds[step]

    @property
    def most_rows(self) -> int:
        """The number of rows of any step in this process, of its replicas together, is at most this."""
        most_groups = max(map(self.size, range(len(self._bounds) - 1)))
        if self._share.parts > 1:  # the first and the last may be there for the most part
            most_groups = min(most_groups, most_groups // self._share.parts + 2)
        return len(self._replica[self._share.replicas]) * most_groups * self.groups.max_size

    def batch(self, step: int) -> Batch | None:
        """Return the groups of a step that this process visits; None where there is none for it."""
        which, own, n_groups = self._visited(step), self.replicas, self.n_replicas * self.size(step)
        if which.start == which.stop:
            return None
        if (size := self.groups.uniform_size) is None:
            return self._unequal_batch((self.order[:, which] + self._first_group)[own], n_groups)
        if self._laid_out is None:
            return self._equal_batch(n_groups, *(part[own] for part in self._lay_out(self.order[:, which], size)))
        return self._equal_batch(n_groups, *(part[own, which] for part in self._laid_out))

    def _visited(self, step: int) -> slice:
        """Return which places of the order this process visits: about as many members as others do."""
        first, n = self._bounds[step], self.size(step)
        part, parts = self._share.part, self._share.parts
        if parts == 1 or self.groups.uniform_size is not None:
            of_step = self._share.of_range(n)
            return slice(first + of_step.start, first + of_step.stop)
        # In whole numbers, so that all processes cut at the same places: a group belongs where its middle does.
        sizes = self.groups.sizes[self.order[:, first : first + n] + self._first_group].sum(0)
        middles = parts * (2 * sizes.cumsum(0) - sizes)
        cuts = torch.searchsorted(middles, 2 * sizes.sum() * torch.tensor([part, part + 1], device=sizes.device))
        return slice(*(first + cuts).tolist())

    def memory_of(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the memory of all groups of a step, and which of it is of those that this process visits."""
        first, own = self._bounds[step], self._visited(step)
        which = self.order[:, first : self._bounds[step + 1]] + self._first_group
        number, segments = self.groups.segments.take(which.flatten())
        place = torch.arange(first, first + which.shape[1], device=which.device)
        visited = ((own.start <= place) & (place < own.stop)).expand_as(which)
        first_memory = self._first_memory.expand_as(which)
        return number + segments.expand(first_memory.flatten()), segments.expand(visited.flatten())

    @property
    def own_memory(self) -> slice:
        """The memory of the replicas of this process."""
        starts = (self._first_memory + self.groups.offsets[self._first_group]).flatten().tolist()
        own = self._share.replicas
        return slice(starts[own.start], [*starts, self.n_memberships][own.stop])

    def batch_at(self, step: Tensor, size: int) -> Batch | None:
        """Return the same for groups of one size without knowing the step, which is a number on the device."""
        if size == 0:
            return None
        place = self._starts.index_select(0, step.view(1)) + torch.arange(size, device=step.device)
        assert self._laid_out is not None
        own = (part[self._share.replicas].index_select(1, place) for part in self._laid_out)
        return self._equal_batch(self.n_replicas * size, *own)

    def _equal_batch(
        self, n_groups: int, rows: Tensor, memory: Tensor, z: Tensor, weights: Tensor | None = None
    ) -> Batch:
        n, size = z.shape[:2].numel(), rows.shape[2]
        if n not in self._equal:
            self._equal[n] = Segments.from_sizes(torch.full((n,), size, device=rows.device))
            # Found now, once: while a graph is captured, nothing may wait for a number.
            assert self._equal[n].uniform_size == size
        of_groups, z = None if weights is None else weights.flatten(), z.flatten(0, 1).contiguous()
        return Batch(rows.flatten(1), None, memory.flatten(), self._equal[n], z, of_groups, n_groups, self.replicas)

    def _unequal_batch(self, which: Tensor, n_groups: int) -> Batch:
        flat = which.flatten()
        number, own = self.groups.segments.take(flat)
        position = torch.arange(len(number), device=which.device)
        replica = torch.repeat_interleave(self._replica[: len(which)].expand_as(which).flatten(), own.sizes)
        starts = own.offsets[:: which.shape[1]]  # of each replica's memberships
        width = int(starts.diff().max())
        place = replica * width + position - starts[replica]
        rows = self.groups.members.new_zeros(len(which) * width)
        rows[place] = self.groups.members[number]
        memory = number + self._first_memory[self.replicas][replica, 0]
        weights = None if self.weights is None else self.weights[flat]
        return Batch(rows.view(-1, width), place, memory, own, self.checked[flat], weights, n_groups, self.replicas)


def draw_order(n: int, generator: torch.Generator, block: Tensor | None = None) -> Tensor:
    """Return a random order of groups, (groups,), by blocks of neighbouring rows if these are given, (groups,).

    Examples
    --------
    >>> draw_order(4, torch.Generator().manual_seed(0), torch.tensor([0, 0, 1, 1])).sort().values
    tensor([0, 1, 2, 3])
    """
    order = torch.randperm(n, generator=generator)
    if block is None or (n_blocks := int(block.max()) + 1) <= BLOCKS_AT_ONCE:
        return order
    turn = torch.randperm(n_blocks, generator=generator) // BLOCKS_AT_ONCE
    return order[turn[block[order]].argsort(stable=True)]
