"""The interface of learners: a path of models from simple to complex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from unbag.learners.problem import Problem


class Model(Protocol):
    """A fitted model of individual rows.

    A model class that can be saved is registered by :func:`register_model`. Its state consists of plain values, which
    become JSON, and tensors, which become safetensors; ``from_state`` restores an equal model.
    """

    kind: str

    def outputs(self, X: Any) -> Tensor:
        """Return the outputs for rows, such as logits, shape ``(rows, outputs)``, float32 on the CPU."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return plain values and tensors from which ``from_state`` restores the model."""
        ...


MODELS: dict[str, Any] = {}
"""Classes of models by ``kind``."""


def register_model(cls: Any) -> Any:
    """Register a class of models, so that its instances can be saved and loaded."""
    MODELS[cls.kind] = cls
    return cls


class Learner(Protocol):
    """A regularisation path, boosting rounds or EM steps; held-out groups determine where to stop.

    A learner knows nothing of folds, time limits or other learners.
    """

    name: str
    reads_missing: bool
    """Whether ``problem.X`` may contain NaN."""

    def prepare(self, problem: Problem, seed: int) -> Learner:
        """Compute what depends on all rows but on no observation, such as clusters; return the prepared learner."""
        ...

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[Model]:
        """Yield models in order of increasing fit until the caller stops.

        Parameters
        ----------
        problem
            Training data, without the held-out groups.
        start
            Outputs for its rows for the first E-step, from a simpler model or a constant one.
        seed
            Seed of the random number generators.
        """
        ...


def draw_generator(seed: int) -> torch.Generator:
    """Return a random number generator of its own: jobs run in threads, which share the global one."""
    return torch.Generator().manual_seed(seed)
