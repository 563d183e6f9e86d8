"""Which groups a step visits, and how their members reach the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.groups import Groups
from unbag.training.observations import Observations


@dataclass(frozen=True, eq=False)
class Batch:
    """The groups that one step visits, of all replicas, one replica after the other."""

    rows: Tensor  # (replicas, n), rows of the table to run each replica on; the end may be padding
    place: Tensor | None  # (memberships,), where each membership is among all replicas' rows; None: in order
    memory: Tensor  # (memberships,), its number among those of the whole set and all replicas
    groups: Groups  # which memberships belong together
    z: Tensor  # of these groups

    def logits_of_members(self, logits: Tensor) -> Tensor:
        """Pick one row per membership: (replicas, n, k) to (memberships, k)."""
        flat = logits.flatten(0, 1).float()
        return flat if self.place is None else flat[self.place]


class Batches:
    """A set of observations, cut anew into batches in every epoch, for each replica by its own random numbers.

    Parameters
    ----------
    observations
        One set that all replicas share, or one for each replica with the same number of groups.
    n_replicas
        How many models are trained.
    n_steps
        Steps an epoch; every group is visited once, in batches whose sizes differ by one at most.
    """

    def __init__(self, observations: Sequence[Observations], n_replicas: int, n_steps: int) -> None:
        self.aggregate = observations[0].aggregate
        self.weight = observations[0].weight
        self.n_classes = observations[0].n_classes
        self.n_groups = len(observations[0].groups)
        self.groups = Groups.from_offsets(
            torch.cat(
                [observations[0].groups.offsets[:1], torch.cat([one.groups.sizes for one in observations]).cumsum(0)]
            ),
            torch.cat([one.groups.members for one in observations]),
        )
        # By the aggregate that will read them: one of another replica may have numbered its outcomes differently.
        checked = [self.aggregate.check(one.z, one.groups, self.n_classes) for one in observations]
        self.checked = torch.cat(checked)
        self.n_replicas = n_replicas
        self._bounds = [self.n_groups * step // n_steps for step in range(n_steps + 1)]
        self._starts = torch.tensor(self._bounds, device=self.groups.device)
        replica = torch.arange(n_replicas, device=self.groups.device)[:, None]
        shared = len(observations) == 1
        # Where a replica's groups begin among all, and where its memory of memberships does.
        self._first_group = torch.zeros_like(replica) if shared else replica * self.n_groups
        self._first_memory = replica * len(self.groups.members) if shared else torch.zeros_like(replica)
        self.n_memberships = len(self.groups.members) * (n_replicas if shared else 1)
        self._replica = replica
        self._equal_groups: dict[int, Groups] = {}

    def shuffle(self, generators: Sequence[torch.Generator]) -> Tensor:
        """Return an order of the groups for each replica, (replicas, groups)."""
        orders = [torch.randperm(self.n_groups, generator=generator) for generator in generators]
        return torch.stack(orders).to(self.groups.device)

    def size(self, step: int) -> int:
        """Return how many groups of this set a step visits."""
        return self._bounds[step + 1] - self._bounds[step]

    def batch(self, order: Tensor, step: int) -> Batch | None:
        """Return the groups of a step; None where a small set has none for it."""
        if self.size(step) == 0:
            return None
        which = order[:, self._bounds[step] : self._bounds[step + 1]] + self._first_group  # (replicas, groups)
        return (
            self._unequal(which) if self.groups.uniform_size is None else self._equal(which, self.groups.uniform_size)
        )

    def batch_at(self, order: Tensor, step: Tensor, size: int) -> Batch | None:
        """Return the same for groups of one size without knowing the step, which is a number on the device."""
        if size == 0:
            return None
        place = self._starts.index_select(0, step.view(1)) + torch.arange(size, device=order.device)
        which = order[:, place] + self._first_group
        assert self.groups.uniform_size is not None
        return self._equal(which, self.groups.uniform_size)

    def _equal(self, which: Tensor, size: int) -> Batch:
        n = which.numel()
        if n not in self._equal_groups:
            self._equal_groups[n] = Groups.from_sizes(torch.full((n,), size, device=which.device))
        number = (which[:, :, None] * size + torch.arange(size, device=which.device)).flatten(1)
        memory = (number + self._first_memory).flatten()
        return Batch(self.groups.members[number], None, memory, self._equal_groups[n], self.checked[which.flatten()])

    def _unequal(self, which: Tensor) -> Batch:
        flat = which.flatten()
        own = Groups.from_sizes(self.groups.sizes[flat])
        position = torch.arange(len(own.members), device=which.device)
        number = position + torch.repeat_interleave(self.groups.offsets[flat] - own.offsets[:-1], own.sizes)
        replica = torch.repeat_interleave(self._replica.expand_as(which).flatten(), own.sizes)
        starts = own.offsets[:: which.shape[1]]  # of each replica's memberships
        width = int(starts.diff().max())
        place = replica * width + position - starts[replica]
        rows = self.groups.members.new_zeros(self.n_replicas * width)
        rows[place] = self.groups.members[number]
        memory = number + self._first_memory[replica, 0]
        return Batch(rows.view(self.n_replicas, width), place, memory, own, self.checked[flat])
