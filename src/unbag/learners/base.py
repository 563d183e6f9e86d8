"""The interface of learners: a path of models from simple to complex."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from unbag.data.row_source import Rows, RowSubset
from unbag.learners.problem import Problem

SEEDS_OF_FOLDS = 1_000_003
"""Distance of the seeds of restarts: larger than the number of folds, whose seeds follow each other."""
ROWS_AT_ONCE = 8192
"""Rows that models read at a time, which bounds the memory of passes over all rows."""

T = TypeVar("T", bound=type)


class Model(Protocol):
    """A fitted model of individual rows.

    A model class that can be saved is registered by :func:`register_model`. Its state consists of plain values, which
    become JSON, and tensors, which become safetensors. ``from_state(values, tensors, model=None)`` restores an equal
    model, or raises ``ValueError`` for values that do not fit together; ``model`` is the module or function that the
    caller of ``fit`` passed, which is not saved. A missing value of a table is NaN. A model that is made of operations
    of torch has a method ``to_module()``, which returns it as a module.
    """

    kind: str

    def outputs(self, X: Rows) -> Tensor:
        """Return the outputs for rows, such as logits, shape ``(rows, outputs)``, float32 on the CPU."""

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return plain values and tensors from which ``from_state`` restores the model."""


MODELS: dict[str, Any] = {}
"""Classes of models by ``kind``."""


def register_model(cls: T) -> T:
    """Register a class of models, so that its instances can be saved and loaded."""
    MODELS[cls.kind] = cls  # type: ignore[attr-defined]
    return cls


LEARNERS: dict[str, type[Learner]] = {}
"""Classes of learners that ``model=`` names, beside those of this package."""


def register_learner(cls: T) -> T:
    """Register a class of learners that is made without arguments, so that ``model=`` of the estimator can name it.

    Its name is the class attribute ``name``.
    """
    LEARNERS[cls.name] = cls  # type: ignore[attr-defined]
    return cls


def is_network(model: Any) -> bool:
    """Return whether a model of the caller is a network, by name or a module; ``"auto"`` has networks among others.

    Examples
    --------
    >>> is_network("mlp"), is_network("trees")
    (True, False)
    """
    return not isinstance(model, BaseEstimator) and not (isinstance(model, str) and model in ("trees", *LEARNERS))


def name_of(model: Any) -> str:
    """Return the name of a model for messages."""
    return f"model={model!r}" if isinstance(model, str) else type(model).__name__


class Learner(Protocol):
    """A regularisation path, boosting rounds or EM steps; held-out groups determine where to stop.

    A learner knows nothing of folds, time limits or other learners.
    """

    @property
    def name(self) -> str:
        """Return the name under which results are reported."""

    def prepare(self, problem: Problem, seed: int) -> Learner:
        """Compute what depends on all rows but on no observation, such as clusters; return the prepared learner."""

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[Model]:
        """Yield models in order of increasing fit until the caller stops.

        ``problem`` is the training data without held-out groups; ``start`` are outputs for its rows for the first
        E-step, from simpler models or a constant one.
        """


class Unprepared:
    """A base of learners that have nothing to compute before their first path."""

    def prepare(self, problem: Problem, seed: int) -> Self:
        """Return the learner as it is."""
        return self


@dataclass(frozen=True)
class Restarted:
    """A learner with another random initialisation."""

    learner: Learner
    number: int

    @property
    def name(self) -> str:
        """Return the name of the learner, with a number."""
        return f"{self.learner.name} {self.number + 1}"

    def prepare(self, problem: Problem, seed: int) -> Restarted:
        """Prepare the learner."""
        return replace(self, learner=self.learner.prepare(problem, seed))

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[Model]:
        """Yield the path of the learner from another seed."""
        return self.learner.path(problem, start, seed + SEEDS_OF_FOLDS * self.number)


def split_rows(X: Rows, size: int = ROWS_AT_ONCE) -> Iterator[Tensor]:
    """Yield consecutive rows, ``size`` at a time."""
    yield from X.split(size) if isinstance(X, Tensor) else RowSubset(X).split(size)


def map_rows(function: Callable[[Tensor], Tensor], X: Rows) -> Tensor:
    """Apply a function to all rows, a bounded number at a time, and concatenate the results in float32 on the CPU."""
    with torch.no_grad():
        return torch.cat([function(part).float().cpu() for part in split_rows(X)])
