"""Networks by expectation-maximisation: an E-step on all rows, then an M-step in minibatches of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from unbag._utils.random_state import RandomState, may_draw
from unbag.data.row_source import Rows, fill_missing, find_missing, gather_rows, row_shape, rows_on, transform_rows
from unbag.learners.architectures import MLP, MakeModel, build, model_names
from unbag.learners.architectures import Model as ModelChoice
from unbag.learners.base import Unprepared, map_rows, register_model, split_rows
from unbag.learners.features import FillMissing
from unbag.learners.problem import Problem
from unbag.objectives.losses import Loss
from unbag.objectives.objective import match_proportions

MAX_ROW_VALUES = 2**25
"""Values of a row at most in a saved network: a module of the caller runs on one row to see how many outputs it has."""


@dataclass(frozen=True)
class Architecture:
    """What networks look like: a name of :data:`unbag.models.MODELS`, or code that makes modules."""

    model: ModelChoice = "mlp"  # of a module, each network is a copy with new weights
    hidden: tuple[int, ...] = (500,)  # units of the hidden layers of ``"mlp"``

    def maker(self, input_shape: tuple[int, ...], n_outputs: int) -> MakeModel:
        """Return a function that makes new modules for rows of a shape."""
        if self.model == "mlp":
            return partial(MLP, prod(input_shape), n_outputs, self.hidden)
        return build(self.model, input_shape, n_outputs)

    def settings(self) -> dict[str, Any]:
        """Return what a saved model keeps; ``model`` is None for modules and functions, which are code."""
        return {"model": self.model if isinstance(self.model, str) else None, "hidden": list(self.hidden)}


@register_model
@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A module from scaled rows to outputs."""

    kind = "network"
    module: nn.Module
    architecture: Architecture
    missing: Tensor  # (columns with missing values,)
    input_shape: tuple[int, ...]  # of the module
    n_outputs: int

    def outputs(self, X: Rows) -> Tensor:
        """Return the outputs for rows."""
        device = next((tensor.device for tensor in self.module.state_dict().values()), torch.device("cpu"))
        return map_rows(lambda part: self.module(fill_missing(part.to(device), self.missing)), X)

    def to_module(self) -> nn.Module:
        """Return the model as a module from rows to outputs."""
        return nn.Sequential(FillMissing(self.missing), deepcopy(self.module).cpu())

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the architecture, and the weights of the module."""
        values = {**self.architecture.settings(), "input_shape": list(self.input_shape), "n_outputs": self.n_outputs}
        weights = {f"module.{name}": tensor.cpu() for name, tensor in self.module.state_dict().items()}
        return values, {"missing": self.missing, **weights}

    @classmethod
    def from_state(
        cls, values: dict[str, Any], tensors: dict[str, Tensor], model: ModelChoice | None = None
    ) -> NetworkModel:
        """Restore a model; a named architecture is made without memory until it has the weights."""
        name, hidden = values["model"], tuple(values["hidden"])
        chosen = model if name is None else name
        if chosen is None:
            raise ValueError("the network was made from a module or function, which is not saved; pass model= to load")
        if name is not None and name not in model_names():
            raise ValueError(f"the architecture must be one of {', '.join(model_names())}, got {name!r}")
        shape, n_outputs, missing = tuple(values["input_shape"]), values["n_outputs"], tensors.pop("missing")
        sizes = (*hidden, *shape, n_outputs)
        if (
            len(hidden) > len(tensors)
            or not all(type(size) is int and size > 0 for size in sizes)
            or prod(shape) > MAX_ROW_VALUES
        ):
            raise ValueError(f"{len(tensors)} tensors are no network for rows of shape {shape}")
        architecture = Architecture(chosen, hidden)
        weights = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
        with RandomState(0).in_place(), nullcontext() if name is None else torch.device("meta"):
            module = architecture.maker(shape, n_outputs)()
        module.load_state_dict(weights, assign=name is not None)
        return cls(module.eval(), architecture, missing, shape, n_outputs)


@dataclass(frozen=True)
class Network(Unprepared):
    """A step of the path is an E-step on all rows and an M-step of some hundred minibatches.

    Its models are exponential moving averages of the weights.
    """

    name: str = "network"
    architecture: Architecture = field(default_factory=Architecture)
    n_steps: int = 80
    min_updates: int = 60  # minibatches of a step; a step visits each row at least once
    batch_size: int = 256
    learning_rate: float = 3e-3  # of AdamW
    weight_decay: float = 0.05
    averaging: float = 0.99
    overrelaxation: float = 1.0  # see :meth:`unbag.data.labels.Categorical.extrapolate`
    loss: Loss | None = None  # of the unbiased risk from logits; None is the cross entropy
    device: str = "cpu"

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[NetworkModel]:
        """Yield the averaged network after each M-step."""
        missing = find_missing(split_rows(problem.X))
        X = transform_rows(rows_on(problem.X, self.device), partial(fill_missing, columns=missing))
        random = RandomState(seed, torch.device(self.device))
        shape, n_outputs = row_shape(X), problem.labels.n_outputs
        with random.in_place():
            module = self.architecture.maker(shape, n_outputs)().to(self.device).train()
        average, share = deepcopy(module).requires_grad_(False), 1.0
        weights, averaged = ([*net.parameters()] for net in (module, average))
        optimiser = torch.optim.AdamW(weights, self.learning_rate, weight_decay=self.weight_decay, fused=True)
        drawing = random.in_place if may_draw(module, self.loss) else nullcontext
        batches, outputs = self._draw_batches(problem, torch.Generator().manual_seed(seed)), start
        for _ in range(self.n_steps):
            targets = self._targets(problem, outputs)  # E-step
            with drawing():
                for batch in islice(batches, self._n_updates(problem)):  # M-step
                    if problem.watch.seconds_left() <= 0:
                        break
                    risk = self._risk(problem, module, X, batch, targets)
                    optimiser.zero_grad()
                    risk.backward()
                    optimiser.step()
                    with torch.no_grad():
                        torch._foreach_lerp_(averaged, weights, share)  # type: ignore[arg-type]
                    share = 1 - self.averaging
            for buffer, current in zip(average.buffers(), module.buffers(), strict=True):
                buffer.copy_(current)
            model = NetworkModel(deepcopy(average).eval(), self.architecture, missing, shape, n_outputs)
            outputs = model.outputs(problem.X)
            yield model

    def _n_updates(self, problem: Problem) -> int:
        return max(self.min_updates, math.ceil(len(problem.rows) / self.batch_size))

    def _targets(self, problem: Problem, outputs: Tensor) -> Tensor:
        """Return the expected labels of all rows."""
        return problem.targets(outputs, self.overrelaxation)

    def _draw_batches(self, problem: Problem, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield minibatches of row numbers, in a new order for each pass."""
        while True:
            yield from torch.randperm(len(problem.rows), generator=generator).split(self.batch_size)

    def _risk(self, problem: Problem, module: nn.Module, X: Rows, batch: Tensor, targets: Tensor) -> Tensor:
        outputs, expected = module(gather_rows(X, batch.to(X.device))), targets[batch].to(X.device)
        if self.loss is None:
            return problem.labels.risk(outputs, expected).mean()
        return (expected * self.loss(outputs)).sum(1).mean()


@dataclass(frozen=True)
class Matching(Network):
    """Networks whose mean predictions match the shares of the classes in groups: strong where groups are few and large.

    A step of the path is a number of minibatches of groups of one set of counts; it ignores the first outputs.
    """

    name: str = "matching"
    n_steps: int = 20
    min_updates: int = 25
    batch_size: int = 256
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
