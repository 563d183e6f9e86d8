"""Which groups a step visits, and how their members reach the models.

The order of an epoch is a random permutation of the groups. Where rows are on disk, neighbouring rows form blocks of
about 4 MiB, and a group belongs to the block of its first row. Blocks are drawn in random order, 128 at a time, and
their groups are visited in random order before the next blocks are drawn, so that an epoch reads every block once and
half a GiB is enough to cache what it reads at a time. Smaller tables are visited in the same order as in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.aggregates.observations import Observations
from unbag.data.groups import Groups

BLOCKS_AT_ONCE = 128
"""Number of blocks of neighbouring rows whose groups are shuffled together."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The groups of a step, of all replicas, one replica after the other."""

    rows: Tensor  # (replicas, n), row numbers of each replica, padded at the end
    place: Tensor | None  # (memberships,), the position of each membership among all replicas' rows; None: in order
    memory: Tensor  # (memberships,), the number of each membership among those of all replicas
    segments: Segments  # the memberships of each group
    z: Tensor  # (groups, ...)
    weights: Tensor | None  # (groups,), 1 on average over the set; None: all 1
    n_groups: int  # of all replicas and processes in this step

    def select_members(self, outputs: Tensor) -> Tensor:
        """Select one row per membership: ``(replicas * n, width)`` to ``(memberships, width)``."""
        return outputs.float() if self.place is None else outputs[self.place].float()

    def scatter_members(self, gradient: Tensor) -> Tensor:
        """Undo :meth:`select_members`, with zeros for padding; returns ``(replicas, n, width)``."""
        if self.place is not None:
            zeros = gradient.new_zeros(self.rows.numel(), gradient.shape[1])
            gradient = zeros.index_copy_(0, self.place, gradient)
        return gradient.view(*self.rows.shape, -1)


class Batches:
    """Groups that are divided into new batches in every epoch, for each replica by its own random numbers.

    All replicas share a set of observations, or each has one, of which the longest sets the length of an epoch. Batches
    differ by at most one group, and each of ``n_parts`` processes visits a part. Rows in memory have no blocks.
    """

    def __init__(
        self,
        observations: Sequence[Observations],
        n_replicas: int,
        n_steps: int,
        *,
        part: int = 0,
        n_parts: int = 1,
        rows_of_block: int | None = None,
        blocks_at_once: int = BLOCKS_AT_ONCE,
    ) -> None:
        first = observations[0]
        self.aggregate, self.weight, self.n_classes = first.aggregate, first.weight, first.n_classes
        self.n_replicas = n_replicas
        self._part, self._n_parts = part, n_parts
        if len(observations) == 1:
            observations = [first] * n_replicas
        # The groups of all replicas, one replica after the other.
        ends = torch.cat([s.groups.sizes for s in observations]).cumsum(0)
        members = torch.cat([s.groups.members for s in observations])
        self.groups = Groups.from_offsets(torch.cat([first.groups.offsets[:1], ends]), members)
        self.checked = torch.cat([self._encoded(s) for s in observations])
        weighted = any(s.group_weights is not None for s in observations)
        self.weights = torch.cat([(s.weights / s.weights.mean()).float() for s in observations]) if weighted else None
        self._n_groups, device = [len(s.groups) for s in observations], self.groups.device
        n_visits = max(self._n_groups)
        self._bounds = [n_visits * step // n_steps for step in range(n_steps + 1)]
        self._starts = torch.tensor(self._bounds, device=device)
        self._blocks_at_once = blocks_at_once
        first_rows = members[self.groups.offsets[:-1]].cpu()
        self._block = None if rows_of_block is None else first_rows // rows_of_block  # of each group
        self._segments: dict[int, Segments] = {}  # by the number of groups, of one size
        # The groups in the order in which each replica visits them; changed in place, as a captured graph reads it.
        self.order = torch.zeros(n_replicas, n_visits, dtype=torch.int64, device=device)
        # The groups of each replica that are visited first in the next epoch.
        self.rest = [torch.zeros(0, dtype=torch.int64)] * n_replicas

    def _encoded(self, observations: Observations) -> Tensor:
        """Return validated observations as this aggregate encodes them; an equal one may do so in another way."""
        if observations.aggregate is self.aggregate:
            return observations.checked
        return self.aggregate.check(observations.z, observations.groups, self.n_classes)

    def shuffle(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the order of the groups for a new epoch, by the generator of each replica."""
        n_visits, first = self.order.shape[1], 0
        for replica, (n, generator) in enumerate(zip(self._n_groups, generators, strict=True)):
            order = self.rest[replica]
            block = None if self._block is None else self._block[first : first + n]
            while len(order) < n_visits:
                order = torch.cat([order, first + draw_order(n, generator, block, self._blocks_at_once)])
            self.order[replica].copy_(order[:n_visits])
            self.rest[replica] = order[n_visits:].clone()
            first += n

    def size(self, step: int) -> int:
        """Return the number of groups of each replica in a step."""
        return self._bounds[step + 1] - self._bounds[step]

    @property
    def most_rows(self) -> int:
        """An upper bound of the number of rows of any step, of all replicas and processes together."""
        return self.n_replicas * max(map(self.size, range(len(self._bounds) - 1))) * self.groups.max_size

    def batch(self, step: int) -> Batch | None:
        """Return the groups of a step that this process visits; None if there are none."""
        visited = self._visited(step)
        if visited.start == visited.stop:
            return None
        which, n_groups = self.order[:, visited], self.n_replicas * self.size(step)
        return (self._unequal_batch if self.groups.uniform_size is None else self._equal_batch)(which, n_groups)

    def batch_at(self, step: Tensor, n: int) -> Batch | None:
        """Return the same for n groups of one size, where the number of the step is known to the device only."""
        if n == 0:
            return None
        place = self._starts.index_select(0, step.view(1)) + torch.arange(n, device=step.device)
        return self._equal_batch(self.order.index_select(1, place), self.n_replicas * n)

    def _visited(self, step: int) -> slice:
        """Return the part of the order that this process visits: about as many members as other processes do."""
        first, n = self._bounds[step], self.size(step)
        part, n_parts = self._part, self._n_parts
        if n_parts == 1 or self.groups.uniform_size is not None:
            return slice(first + n * part // n_parts, first + n * (part + 1) // n_parts)
        # In integers, so that all processes compute the same cuts: a group belongs to the part with its middle.
        sizes = self.groups.sizes[self.order[:, first : first + n]].sum(0)
        middles = n_parts * (2 * sizes.cumsum(0) - sizes)
        cuts = torch.searchsorted(middles, 2 * sizes.sum() * torch.tensor([part, part + 1], device=sizes.device))
        return slice(*(first + cuts).tolist())

    def memory_of(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the memberships of all groups of a step, and whether this process visits them."""
        first, visits = self._bounds[step], self._visited(step)
        which = self.order[:, first : self._bounds[step + 1]]
        number, segments = self.groups.segments.take(which.flatten())
        place = torch.arange(first, first + which.shape[1], device=which.device)
        visited = ((visits.start <= place) & (place < visits.stop)).expand_as(which)
        return number, segments.expand(visited.flatten())

    def _equal_batch(self, which: Tensor, n_groups: int) -> Batch:
        n, flat, size = which.numel(), which.flatten(), self.groups.max_size
        if n not in self._segments:
            self._segments[n] = Segments.from_sizes(torch.full((n,), size, device=which.device))
            assert self._segments[n].uniform_size == size  # computed now: a graph under capture must not wait for it
        number = which[:, :, None] * size + torch.arange(size, device=which.device)  # (replicas, groups, members)
        rows = self.groups.members[number].flatten(1)
        weights = None if self.weights is None else self.weights[flat]
        return Batch(rows, None, number.flatten(), self._segments[n], self.checked[flat], weights, n_groups)

    def _unequal_batch(self, which: Tensor, n_groups: int) -> Batch:
        flat = which.flatten()  # (replicas * groups,)
        number, segments = self.groups.segments.take(flat)
        position = torch.arange(len(number), device=which.device)
        replica = torch.arange(len(which), device=which.device)[:, None].expand_as(which)
        replica = torch.repeat_interleave(replica.flatten(), segments.sizes)
        starts = segments.offsets[:: which.shape[1]]  # of the memberships of each replica
        width = int(starts.diff().max())
        place = replica * width + position - starts[replica]
        rows = self.groups.members.new_zeros(len(which) * width)
        rows[place] = self.groups.members[number]
        weights = None if self.weights is None else self.weights[flat]
        return Batch(rows.view(-1, width), place, number, segments, self.checked[flat], weights, n_groups)


def draw_order(
    n: int, generator: torch.Generator, block: Tensor | None = None, blocks_at_once: int = BLOCKS_AT_ONCE
) -> Tensor:
    """Return a random order of n groups, by blocks of neighbouring rows if the block of each group is given."""
    order = torch.randperm(n, generator=generator)
    if block is None or (n_blocks := int(block.max()) + 1) <= blocks_at_once:
        return order
    turn = torch.randperm(n_blocks, generator=generator) // blocks_at_once
    return order[turn[block[order]].argsort(stable=True)]
