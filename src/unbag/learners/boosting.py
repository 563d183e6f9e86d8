"""Boosted trees by generalised expectation-maximisation: an E-step every few rounds of LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.row_source import Rows
from unbag.learners.base import register_model, split_rows
from unbag.learners.problem import Problem
from unbag.learners.tree_text import read_trees, write_text

MIN_CURVATURE = 1e-6
"""Hessian of a row at least: LightGBM divides by their sum."""


@register_model
@dataclass(frozen=True, eq=False)
class BoostingModel:
    """The trees of the first rounds of a booster; for two classes they sum to the log-odds of class 1."""

    kind = "boosting"
    booster: Any
    n_rounds: int
    base: Tensor  # (outputs,), logits before the first round
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)
    """Predictions of the last rows by an earlier model of the same booster, from which the next one continues."""

    def outputs(self, X: Rows) -> Tensor:
        """Return the outputs for rows."""
        if self._cache.get("X") is X and self._cache["n_rounds"] <= self.n_rounds:
            first, raw = self._cache["n_rounds"], self._cache["raw"]
        else:
            first, raw = 0, np.zeros((len(X), self.booster.num_model_per_iteration()))
        if first < self.n_rounds and len(X):
            raw = raw + np.concatenate([self._predict(part, first) for part in split_rows(X)])
            self._cache.update(X=X, n_rounds=self.n_rounds, raw=raw)
        return _as_logits(raw, self.base)

    def _predict(self, X: Tensor, first: int) -> np.ndarray:
        table = X.flatten(1).numpy(force=True)
        if table.shape[1] != self.booster.num_feature():
            raise ValueError(f"the trees are of {self.booster.num_feature()} columns, but rows have {table.shape[1]}")
        rounds = {"start_iteration": first, "num_iteration": self.n_rounds - first, "num_threads": 1}
        return self.booster.predict(table, raw_score=True, **rounds).reshape(len(X), -1)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the number of columns, the trees as arrays, and the first logits."""
        return {"n_features": self.booster.num_feature()}, {
            "base": self.base,
            **read_trees(self.booster, self.n_rounds),
        }

    @classmethod
    def from_state(cls, values: dict[str, Any], tensors: dict[str, Tensor], model: Any = None) -> BoostingModel:
        """Restore a model, and validate its arrays before LightGBM reads them."""
        base = tensors.pop("base")
        n_scores = 1 if len(base) == 2 else len(base)
        text = write_text(tensors, values["n_features"], n_scores)
        return cls(import_lightgbm().Booster(model_str=text), len(tensors["num_leaves"]) // n_scores, base)


@dataclass(frozen=True)
class Boosting:
    """A step of the path is an E-step and some rounds of trees that are added along the gradient of the M-step."""

    name: str = "trees"
    n_steps: int = 20
    rounds_per_step: int = 15
    learning_rate: float = 0.15
    overrelaxation: float = 1.0  # see :meth:`unbag.data.labels.Categorical.extrapolate`
    parameters: dict[str, Any] = field(default_factory=dict)  # further ones of LightGBM

    def prepare(self, problem: Problem, seed: int) -> Boosting:
        """Return the learner as it is."""
        return self

    def path(self, problem: Problem, start: Tensor, seed: int) -> Iterator[BoostingModel]:
        """Yield the trees after each step; none where no column can be split."""
        booster, base, cache = self._make_booster(problem, seed), problem.constant_outputs, dict[str, Any]()
        if booster is None:
            return
        try:
            for step in range(self.n_steps):
                objective = _Objective(problem, base, None if step else start, self.overrelaxation)
                for _ in range(self.rounds_per_step):
                    if problem.watch.seconds_left() <= 0:
                        break
                    booster.update(fobj=objective)
                yield BoostingModel(booster, booster.current_iteration(), base, cache)
        finally:
            cache.clear()  # it holds rows, which would be sent between processes

    def _make_booster(self, problem: Problem, seed: int) -> Any:
        """Return a booster without trees, or None where LightGBM can split no column."""
        lightgbm = import_lightgbm()
        table = torch.cat([part.flatten(1) for part in split_rows(problem.X)]).numpy(force=True)
        n_outputs = problem.labels.n_outputs
        parameters = {
            "objective": "none",
            "num_class": 1 if n_outputs == 2 else n_outputs,
            "num_leaves": 31 if n_outputs >= 12 else 15,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": 10,
            "min_sum_hessian_in_leaf": 1.0,  # of soft targets: trees with smaller hessians diverge
            "feature_fraction": float(np.clip(40 / table.shape[1], 0.2, 0.7)),
            "max_bin": 63,
            "feature_pre_filter": False,  # whether a column can be split differs between folds
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed,
            "verbose": -1,
            **self.parameters,
        }
        data = lightgbm.Dataset(table, params=parameters).construct()
        n_bins = max(data.feature_num_bin(column) for column in range(table.shape[1]))
        if n_bins < 2 or len(table) < 2 * parameters["min_data_in_leaf"]:
            return None
        return lightgbm.Booster(parameters, data)


@dataclass(eq=False)
class _Objective:
    """Gradient of the cross entropy with expected labels, which are computed at the first round of a step."""

    problem: Problem
    base: Tensor
    start: Tensor | None
    """Outputs for the E-step; None uses the predictions of the booster."""
    overrelaxation: float
    targets: np.ndarray | None = None

    def __call__(self, raw: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
        outputs = _as_logits(raw, self.base)
        if self.targets is None:
            at = outputs if self.start is None else self.start
            self.targets = self.problem.targets(at, self.overrelaxation).numpy()
        weights = self.targets.sum(1, keepdims=True)
        probs = outputs.softmax(1).numpy()
        gradient = weights * probs - self.targets
        curvature = np.maximum(weights * probs * (1 - probs), MIN_CURVATURE)
        if len(self.base) == 2:
            return np.ascontiguousarray(gradient[:, 1]), np.ascontiguousarray(curvature[:, 1])
        return gradient, curvature


def _as_logits(raw: np.ndarray, base: Tensor) -> Tensor:
    """Return logits from the sums of trees; for two classes these are log-odds."""
    scores = torch.from_numpy(np.ascontiguousarray(raw, dtype=np.float32)).view(-1, 1 if len(base) == 2 else len(base))
    return (torch.cat([torch.zeros_like(scores), scores], 1) if len(base) == 2 else scores) + base


def has_lightgbm() -> bool:
    """Return whether LightGBM is installed."""
    return find_spec("lightgbm") is not None


def import_lightgbm() -> Any:
    """Return the module of LightGBM, or raise an error that says how to install it."""
    try:
        import lightgbm  # noqa: PLC0415 (an optional dependency)
    except ImportError as error:
        raise ImportError("model='trees' needs LightGBM, which is not installed: pip install unbag[trees]") from error
    return lightgbm
