"""Linear models on columns or other features, fitted to all groups at once by L-BFGS along a ridge path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from unbag.data.row_source import Rows, SparseRows
from unbag.learners.base import map_rows, register_model, split_rows
from unbag.learners.features import FEATURE_MAPS, Columns, FeatureMap, Features, MakeFeatures
from unbag.learners.problem import Problem, Watch

MAX_CACHED_VALUES = 2**27
"""Features beyond which they are computed again in each pass rather than kept: 512 MiB."""
HISTORY_SIZE = 12
MIN_RELATIVE_DECREASE = 1e-4
"""Decrease of the loss in an iteration, relative to the gain over a constant model, below which it is the last: where
noise is most of the loss, a part of the loss itself would end the search at the start."""

SYMMETRY_BREAKING = 0.1
"""Standard deviation of random initial weights: where observations leave classes unnamed, equal weights are a saddle
point; from it, three classes were learned from pairs with 31 % accuracy, with random weights with 99 %."""
MAX_EQUAL = 1e-3
"""Difference of weights up to which they are equal but for rounding errors."""


@register_model
@dataclass(frozen=True, eq=False)
class LinearModel:
    """Outputs that are linear in features."""

    kind = "linear"
    features: FeatureMap
    weight: Tensor  # (features + 1, outputs); the last row is the intercept

    def outputs(self, X: Rows) -> Tensor:
        """Return the outputs for rows."""
        if isinstance(X, SparseRows) and isinstance(self.features, Columns):
            return _multiply(self.features(X), self.weight)
        return map_rows(lambda part: _multiply(self.features(part), self.weight), X)

    def to_module(self) -> nn.Module:
        """Return the model as a module from rows to outputs."""
        n_inputs, n_outputs = len(self.weight) - 1, self.weight.shape[1]
        layer = nn.Linear(n_inputs, n_outputs, device="meta", dtype=self.weight.dtype)
        layer.load_state_dict({"weight": self.weight[:-1].T.contiguous(), "bias": self.weight[-1].clone()}, assign=True)
        return nn.Sequential(Features(self.features), layer)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the kind of the features, and all tensors."""
        tensors = {f"features.{name}": tensor for name, tensor in self.features.tensors().items()}
        return {"features": self.features.kind}, {"weight": self.weight, **tensors}

    @classmethod
    def from_state(cls, values: dict[str, Any], tensors: dict[str, Tensor], model: Any = None) -> LinearModel:
        """Restore a model."""
        weight, prefix = tensors.pop("weight"), "features."
        features = FEATURE_MAPS[values["features"]](**{name.removeprefix(prefix): t for name, t in tensors.items()})
        return cls(features, weight)


@dataclass(frozen=True)
class Linear:
    """Linear models under weaker and weaker ridge penalties.

    The first model starts from an M-step: the labels expected under ``start``. Without it, observations that leave
    classes unnamed would stay at a saddle point, and bags would be explained by what all their rows have in common.
    """

    name: str
    make_features: MakeFeatures  # each fold draws its own random features, so that their errors average out
    ridges: tuple[float, ...] = (1000, 100, 10, 1)  # on half the squared weights
    max_iter: int = 30  # iterations of L-BFGS for each penalty
    once: bool = False  # whether the feature map is computed on the rows of all folds
    features: FeatureMap | None = None  # if it was computed before

    def prepare(self, problem: Problem, seed: int) -> Linear:
        """Compute the features where all folds share them."""
        return replace(self, features=self.make_features(problem, seed)) if self.once else self

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[LinearModel]:
        """Yield a model for each penalty."""
        features = self.features or self.make_features(problem, seed)
        design = _Design(features, problem.X)
        weight = torch.zeros(design.n_inputs + 1, problem.labels.n_outputs)
        weight[-1] = problem.constant_outputs
        targets = problem.targets(start)

        constant = problem.constant_outputs.expand(len(problem.rows), -1)

        def risk(outputs: Tensor) -> Tensor:
            return problem.labels.risk(outputs, targets).sum() - constant_risk

        def loss(outputs: Tensor) -> Tensor:
            return constant_log_likelihood - problem.smooth_log_likelihood(outputs)

        constant_risk = problem.labels.risk(constant, targets).sum()
        constant_log_likelihood = problem.smooth_log_likelihood(constant)

        weight = design.minimise(risk, weight, self.ridges[0], self.max_iter, problem.watch)
        weight = _break_symmetry(weight, seed)
        for ridge in self.ridges:
            weight = design.minimise(loss, weight, ridge, self.max_iter, problem.watch)
            yield LinearModel(features, design.weight_of_features(weight))


def _multiply(inputs: Tensor | SparseRows, weight: Tensor) -> Tensor:
    """Return the outputs for inputs."""
    if isinstance(inputs, SparseRows):
        return (inputs @ weight[:-1]).add_(weight[-1])
    # Products with the transposed weights take a third to an eighth of the time of those with tall matrices.
    return (weight[:-1].T.contiguous() @ inputs.T).T + weight[-1]


def _multiply_transposed(inputs: Tensor | SparseRows, slope: Tensor) -> Tensor:
    """Return the gradient of weights, without the intercept, from that of outputs."""
    return inputs.T @ slope if isinstance(inputs, SparseRows) else (slope.T.contiguous() @ inputs).T


def _break_symmetry(weight: Tensor, seed: int) -> Tensor:
    """Add random numbers to the weights of outputs that are equal to those of another output."""
    apart = torch.stack([(weight - column[:, None]).abs().amax(0) for column in weight.T])
    equal = (apart < MAX_EQUAL).sum(0) > 1
    random = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
    return weight + SYMMETRY_BREAKING * random * equal


class _Design:
    """The inputs of a linear model for all rows, in parts of bounded size.

    Inputs are the features, or, where these are more than twice the rows, coordinates in the span of the rows: L-BFGS
    takes the same steps there, as gradients of the weights are sums of rows. With 40 rows of 100,000 columns, a fit
    takes 3 seconds instead of 19.
    """

    def __init__(self, features: FeatureMap, X: Rows) -> None:
        self.features, self.X = features, X
        self.n_inputs = features(next(split_rows(X, 1))).shape[1]
        self.basis = None
        self.kept: list[Tensor] | list[SparseRows] | None = None
        if isinstance(X, SparseRows) and isinstance(features, Columns):
            self.kept = [features(X)]
        elif len(X) * self.n_inputs <= MAX_CACHED_VALUES:
            inputs = torch.cat([features(part) for part in split_rows(X)])
            if self.n_inputs > 2 * len(X):
                self.basis, coordinates = torch.linalg.qr(inputs.T)  # (features, rows), (rows, rows)
                self.n_inputs, inputs = len(X), coordinates.T.contiguous()
            self.kept = [inputs]

    def weight_of_features(self, weight: Tensor) -> Tensor:
        """Return the weights of features, and the intercept, from those of inputs."""
        return weight if self.basis is None else torch.cat([self.basis @ weight[:-1], weight[-1:]])

    def parts(self) -> Iterable[Tensor] | Iterable[SparseRows]:
        """Return the inputs of consecutive rows."""
        return self.kept or (self.features(part) for part in split_rows(self.X))

    def minimise(
        self, loss: Callable[[Tensor], Tensor], weight: Tensor, ridge: float, max_iter: int, watch: Watch
    ) -> Tensor:
        """Minimise a loss of the outputs of all rows with a ridge penalty on all weights but the intercept.

        It ends early when no time is left.
        """

        def stop(values: np.ndarray) -> None:
            if watch.seconds_left() <= 0:
                raise StopIteration

        def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
            current = torch.from_numpy(values).float().view(weight.shape)
            outputs = torch.cat([_multiply(part, current) for part in self.parts()])
            outputs.requires_grad_()
            value = loss(outputs)
            value.backward()
            gradient = ridge * current
            gradient[-1] = 0
            row = 0
            assert outputs.grad is not None
            for part in self.parts():
                slope = outputs.grad[row : row + len(part)]
                gradient[:-1] += _multiply_transposed(part, slope)
                gradient[-1] += slope.sum(0)
                row += len(part)
            penalty = 0.5 * ridge * float(current[:-1].double().square().sum())
            return float(value.detach()) + penalty, gradient.double().numpy().ravel()

        options = {"maxiter": max_iter, "maxcor": HISTORY_SIZE, "ftol": MIN_RELATIVE_DECREASE}
        first = weight.double().numpy().ravel()
        found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options, callback=stop)
        return torch.from_numpy(found.x).float().view(weight.shape)
