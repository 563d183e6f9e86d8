"""One step of Algorithm 1 of the paper: :meth:`Step._e_and_m_step` is the algorithm, all else is passes and sums.

The objective needs the outputs of all members of a group, but the backward pass only needs its gradient in these
outputs. A step with many rows therefore computes outputs first and keeps nothing else, and then runs forward and
backward part by part. The gradient is the same up to rounding, and memory is that of one part.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from unbag._kernels.logspace import class_major, log_softmax
from unbag._utils.parts import join
from unbag._utils.random_state import RandomState
from unbag.aggregates.base import full_precision
from unbag.data.row_source import Rows, Views, gather_rows, make_views
from unbag.objectives.losses import cross_entropy
from unbag.objectives.objective import (
    Objective,
    ValueAndGrad,
    cross_entropy_risk,
    negative_log_likelihood,
    value_and_grad,
    weighted_risk,
)
from unbag.training.batches import BLOCKS_AT_ONCE, Batch, Batches
from unbag.training.processes import Processes
from unbag.training.replicas import Accelerate, Replicas, learns_from_all_rows
from unbag.training.selection import Score, StoppingRule
from unbag.training.settings import MakeOptimiser, MakeSchedule, Phase, Settings

Backward = Callable[[Tensor], None]  # adds to the gradients of the parameters, from the gradient in the outputs


@dataclass(frozen=True)
class Limits:
    """Sizes from which on a step is computed in another way, with the same result up to rounding."""

    max_rows: int = 65_536
    """Rows of a step, of all replicas together, above which it runs part by part."""
    part_rows: int = 8192
    """Rows of a part: few enough for the caches of a processor, so that the additional pass costs nothing."""
    blocks_at_once: int = BLOCKS_AT_ONCE
    """Blocks of neighbouring rows on disk whose groups are shuffled together; see :mod:`unbag.training.batches`."""


@dataclass(frozen=True)
class Hooks:
    """Functions that replace parts of a run; see :func:`unbag.training.train`."""

    score: Score | None = None
    objective: Objective | None = None
    accelerate: Accelerate | None = None
    optimiser: MakeOptimiser | None = None
    schedule: MakeSchedule | None = None
    stopping: StoppingRule | None = None
    views: Views | None = None


@dataclass(eq=False)
class Step:
    """A step of all replicas, on one batch of each set of observations.

    Models, views and objectives may draw random numbers, those of ``random``; None means that none does.
    """

    replicas: Replicas
    X: Rows
    sets: Sequence[Batches]
    settings: Settings
    hooks: Hooks
    optimiser: Optimizer
    processes: Processes = field(default_factory=Processes)
    random: RandomState | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        k, device = self.sets[0].n_classes, self.X.device
        # Of each set, log-probabilities at the last visit: before the first visit, all classes are equally likely.
        remembers = self.settings.remembers and self.hooks.objective is None
        sizes = [len(batches.groups.members) if remembers else 0 for batches in self.sets]
        self.memory = [torch.full((n, k), -math.log(k), device=device) for n in sizes]
        self.loss_sum = torch.zeros(self.replicas.n, dtype=torch.float64, device=device)  # since the epoch began
        self.at_once = learns_from_all_rows(self.replicas.model)

    def __call__(self, phase: Phase, batches: Sequence[Batch | None], number: int = 0) -> None:
        """Update the replicas by one batch of each set; None is a batch without groups for this process.

        With several processes, ``number`` is that of the step in the epoch.
        """
        self.optimiser.zero_grad()
        for batch, batches_of_set, memory in zip(batches, self.sets, self.memory, strict=True):
            if batch is None:
                continue
            outputs, backward = self._forward(batch)
            with full_precision(outputs.device.type):
                objective = self._e_and_m_step(phase, batches_of_set, batch, outputs, memory)
            if batch.weights is not None:
                objective = objective.weighted(batch.weights, batch.segments)
            # The mean over the groups of each replica, those of other processes included.
            factor = objective.scale * batches_of_set.weight * self.replicas.n / batch.n_groups
            backward(objective.grad.mul_(factor))
            self.loss_sum += factor * objective.values.view(len(batch.rows), -1).sum(1)
        if self.processes.size > 1:
            self._sum_over_processes(number)
        self.optimiser.step()

    def _e_and_m_step(
        self, phase: Phase, batches: Batches, batch: Batch, outputs: Tensor, memory: Tensor
    ) -> ValueAndGrad:
        """Compute what is minimised, and its gradient in the outputs of the members, (memberships, k)."""
        aggregate, segments, z, loss = batches.aggregate, batch.segments, batch.z, self.settings.loss_function
        if (objective := self.hooks.objective) is not None:
            return value_and_grad(lambda outputs: objective(outputs, segments, z), outputs)
        log_probs = log_softmax(class_major(outputs))
        if phase == "likelihood":  # warm-up
            result = negative_log_likelihood(aggregate, log_probs, segments, z)
        else:
            # E-step: the posterior of the labels, from the current model or from its outputs at the last visit.
            recalled = memory.index_select(0, batch.memory) if phase == "remembered weights" else log_probs
            _, weights = aggregate.e_step(recalled, segments, z)
            # M-step: the loss of every label, weighted by its posterior.
            weights = weights.to(log_probs.dtype)
            if loss is cross_entropy:
                result = cross_entropy_risk(log_probs, weights, segments)
            else:
                result = value_and_grad(lambda outputs: weighted_risk(loss(outputs), weights, segments), outputs)
        if len(memory):
            memory.index_copy_(0, batch.memory, log_probs)
        return result

    def _sum_over_processes(self, step: int) -> None:
        """Add up the gradients of all processes, and exchange the outputs that the memory keeps."""
        parameters = self.replicas.parameters()
        # A parameter that no process uses has no gradient.
        used = torch.tensor([float(p.grad is not None) for p in parameters], device=self.X.device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        visited = [(m, *s.memory_of(step)) for m, s in zip(self.memory, self.sets, strict=True) if len(m)]
        kept = [memory.index_select(0, which).masked_fill_(~here[:, None], 0) for memory, which, here in visited]
        self.processes.sum_([used, *gradients, *kept])
        for parameter, gradient, n in zip(parameters, gradients, used.tolist(), strict=True):
            parameter.grad = gradient if n else None
        for (memory, which, _), log_probs in zip(visited, kept, strict=True):
            memory.index_copy_(0, which, log_probs)

    def _inputs(self, rows: Tensor) -> Tensor:
        gathered = gather_rows(self.X, rows)
        return gathered if self.hooks.views is None else make_views(self.hooks.views, gathered)

    def _forward(self, batch: Batch) -> tuple[Tensor, Backward]:
        """Return outputs, one row per membership, and the backward pass."""
        if not self.at_once and batch.rows.numel() > self.limits.max_rows:
            return self._forward_in_parts(batch)
        outputs = batch.select_members(self.replicas(self._inputs(batch.rows)))
        return outputs.detach(), outputs.backward

    def _forward_in_parts(self, batch: Batch) -> tuple[Tensor, Backward]:
        """Return the same; the second pass starts with the buffers and random numbers of the first."""
        n = len(batch.rows)
        parts = batch.rows.split(max(1, self.limits.part_rows // n), 1)  # each (replicas, n)
        buffers = {name: buffer.clone() for name, buffer in self.replicas.buffers().items()}
        random, start = self.random, None if self.random is None else self.random.now()
        # With gradients, though they are not used: without them, some layers compute and draw in other ways.
        predicted = (self.replicas(self._inputs(rows)).detach() for rows in parts)
        outputs = join((part.reshape(n, -1, part.shape[1]) for part in predicted), batch.rows.shape[1], 1)

        def backward(gradient: Tensor) -> None:
            for name, buffer in self.replicas.buffers().items():
                buffer.copy_(buffers[name])
            gradients = batch.scatter_members(gradient).split(parts[0].shape[1], 1)
            with nullcontext() if random is None or start is None else random.again_from(start):
                for rows, part in zip(parts, gradients, strict=True):
                    self.replicas(self._inputs(rows)).float().backward(part.flatten(0, 1))

        return batch.select_members(outputs.flatten(0, 1)), backward
