"""Networks whose mean predictions match the shares of the classes in groups: strong where groups are few and large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unbag.data.row_source import Rows, gather_rows
from unbag.learners.network import Network
from unbag.learners.problem import Problem
from unbag.objectives.objective import match_proportions


@dataclass(frozen=True)
class Matching(Network):
    """A step of the path is a number of minibatches of groups of one set of counts; it ignores the first outputs."""

    name: str = "matching"
    n_steps: int = 20
    min_updates: int = 25
    batch_size: int = 512
    averaging: float = 0.98

    def _n_updates(self, problem: Problem) -> int:
        return self.min_updates

    def _targets(self, problem: Problem, outputs: Tensor) -> Tensor:
        """Return the counts of all groups."""
        return problem.sets[0].checked

    def _draw_batches(self, problem: Problem, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the numbers of groups with about ``batch_size`` rows."""
        n_groups = problem.n_groups
        size = max(round(self.batch_size * n_groups / len(problem.rows)), 1)
        while True:
            yield from torch.randperm(n_groups, generator=generator).split(size)

    def _risk(self, problem: Problem, module: nn.Module, X: Rows, batch: Tensor, targets: Tensor) -> Tensor:
        groups = problem.sets[0].groups.take(batch)
        outputs = module(gather_rows(X, groups.members.to(X.device))).cpu()
        weights = problem.group_weights[batch].float()
        return weights @ match_proportions(outputs, groups.segments, targets[batch]) / weights.sum()
