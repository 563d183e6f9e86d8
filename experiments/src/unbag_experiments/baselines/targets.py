"""What a method computes from observations before training, one row of numbers per group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unbag import Aggregate, Groups
from unbag.training import Observations
from unbag_experiments.baselines.base import Task


class Targets(Aggregate):
    """Numbers that only the objective of a method understands: they have no likelihood."""

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        """Refuse labels, of which nothing is observed here."""
        raise NotImplementedError("targets are computed from observations, not from labels")

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        """Return the numbers as they are."""
        return torch.as_tensor(z, device=groups.device)

    def capturable(self, size: int, n_classes: int) -> bool:
        """Say yes, since there is nothing to compute."""
        return True


def with_targets(task: Task, observations: Observations, held_out: Tensor | None) -> Task:
    """Return a task with other training observations, and with targets in place of what was held out, if any was."""
    if task.held_out is None or held_out is None:
        return replace(task, observations=observations)
    return replace(
        task,
        observations=observations,
        held_out=Observations(Targets(), task.held_out.groups, held_out, task.n_classes),
    )
