"""Feature maps: from rows to the inputs of linear models, also as modules of torch, which ``torch.export`` accepts."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from unbag.data.row_source import SparseRows, Table, fill_missing, find_missing, gather_rows, row_shape
from unbag.learners.base import split_rows
from unbag.learners.problem import Problem

ROWS_FOR_WIDTH = 1000
"""Rows between which distances are measured to set the width of a kernel."""


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A function of rows that is determined by its tensors, which are its fields."""

    kind: ClassVar[str]

    def __call__(self, X: Tensor) -> Tensor:
        """Return the features of rows, shape ``(rows, features)``."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors from which the class makes an equal map."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


FEATURE_MAPS: dict[str, type[FeatureMap]] = {}
"""Classes of feature maps by ``kind``."""

M = TypeVar("M", bound=type[FeatureMap])
MakeFeatures = Callable[[Problem, int], FeatureMap]
"""From a problem and a seed to a feature map."""


def register_feature_map(cls: M) -> M:
    """Register a class of feature maps, so that models with it can be saved and loaded."""
    FEATURE_MAPS[cls.kind] = cls
    return cls


@register_feature_map
@dataclass(frozen=True, eq=False)
class Columns(FeatureMap):
    """The columns themselves, with missing values replaced by 0 and an indicator column."""

    kind = "columns"
    missing: Tensor  # (columns with missing values,)

    @classmethod
    def fit(cls, problem: Problem, seed: int = 0) -> Columns:
        """Find the columns with missing values."""
        if isinstance(problem.X, SparseRows):
            return cls(problem.X.flag_columns(np.isnan).nonzero().flatten())
        return cls(find_missing(part.flatten(1) for part in split_rows(problem.X)))

    def __call__(self, X: Table) -> Table:
        """Return the columns and indicators, sparse for sparse rows."""
        return fill_missing(X if isinstance(X, SparseRows) else X.flatten(1), self.missing)


@register_feature_map
@dataclass(frozen=True, eq=False)
class LastColumns(FeatureMap):
    """The last columns alone."""

    kind = "last_columns"
    chosen: Tensor  # their numbers

    @classmethod
    def fit(cls, problem: Problem, seed: int, *, number: int) -> LastColumns:
        """Choose a number of columns."""
        width = row_shape(problem.X)[0]
        return cls(torch.arange(width - number, width))

    def __call__(self, X: Tensor) -> Tensor:
        """Return these columns."""
        return X[:, self.chosen]


@register_feature_map
@dataclass(frozen=True, eq=False)
class Fourier(FeatureMap):
    """The columns, and random Fourier features of a Gaussian kernel (Rahimi and Recht, 2007)."""

    kind = "fourier"
    missing: Tensor  # (columns with missing values,)
    frequency: Tensor  # (inputs, waves)
    phase: Tensor  # (waves,)

    @classmethod
    def fit(cls, problem: Problem, seed: int, *, scale: float, n_waves: int = 400) -> Fourier:
        """Draw frequencies and phases; ``scale`` is the width of the kernel relative to the median distance."""
        generator = torch.Generator().manual_seed(seed)
        columns = Columns.fit(problem)
        chosen = torch.randint(len(problem.rows), (ROWS_FOR_WIDTH,), generator=generator)
        first, second = columns(gather_rows(problem.X, chosen)).chunk(2)
        width = scale * float((first - second).norm(dim=1).median().clamp_min(1e-6))
        frequency = torch.randn(first.shape[1], n_waves, generator=generator) / width
        phase = 2 * torch.pi * torch.rand(n_waves, generator=generator)
        return cls(columns.missing, frequency, phase)

    def __call__(self, X: Tensor) -> Tensor:
        """Return the columns and the waves, scaled to similar norms."""
        columns = fill_missing(X.flatten(1), self.missing)
        waves = 6 * (2 / len(self.phase)) ** 0.5 * torch.cos(columns @ self.frequency + self.phase)
        return torch.cat([3 / columns.shape[1] ** 0.5 * columns, waves], 1)


class FillMissing(nn.Module):
    """Replace missing values and append indicators; see :func:`unbag.data.row_source.fill_missing`."""

    columns: Tensor

    def __init__(self, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows without missing values."""
        return fill_missing(x, self.columns)


class Features(nn.Module):
    """A feature map whose tensors are buffers, so that they are moved and saved with the module."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self._features, self._names = features, tuple(features.tensors())
        for name, tensor in features.tensors().items():
            self.register_buffer(name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of rows."""
        features = copy(self._features)  # not a new map, which would validate values
        for name in self._names:
            object.__setattr__(features, name, getattr(self, name))
        return features(x)
