"""Boosted trees by generalised expectation-maximisation: an E-step every few rounds of LightGBM.

Trees are saved as arrays, which are validated before they become the text that LightGBM reads: it does not validate its
text, and an index outside of an array makes it read memory of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.row_source import Rows
from unbag.learners.base import Unprepared, register_model, split_rows
from unbag.learners.problem import Problem

MIN_CURVATURE = 1e-6
"""Hessian of a row at least: LightGBM divides by their sum."""
MAX_FEATURES = 2**20
MAX_NUMBER = 1e300
"""In place of an infinite threshold, where only a missing value takes the other branch."""
NUMERIC_DECISIONS = (0, 2, 8, 10)
"""Comparisons of numbers, by where a missing value goes."""

_NODE = {
    **dict.fromkeys(("split_feature", "decision_type", "left_child", "right_child"), np.int64),
    "threshold": np.float64,
}
_ARRAYS = {"num_leaves": np.int64, **_NODE, "leaf_value": np.float64}


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
class Boosting(Unprepared):
    """A step of the path is an E-step and some rounds of trees that are added along the gradient of the M-step."""

    name: str = "trees"
    n_steps: int = 20
    rounds_per_step: int = 15
    learning_rate: float = 0.15
    overrelaxation: float = 1.0  # see :meth:`unbag.data.labels.Categorical.extrapolate`
    parameters: dict[str, Any] = field(default_factory=dict)  # further ones of LightGBM

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


def read_trees(booster: Any, n_rounds: int) -> dict[str, Tensor]:
    """Return the number of leaves of each tree in the first rounds, and the nodes and leaves of all trees in order."""
    trees = booster.model_to_string(num_iteration=n_rounds).partition("end of trees")[0].split("\n\nTree=")[1:]
    entries = [dict(line.split("=", 1) for line in tree.split("\n")[1:] if line) for tree in trees]
    arrays = {}
    for name, dtype in _ARRAYS.items():
        numbers = np.array(" ".join(entry[name] for entry in entries).split(), dtype)
        arrays[name] = torch.from_numpy(numbers.clip(-MAX_NUMBER, MAX_NUMBER) if dtype is np.float64 else numbers)
    return arrays


def write_text(arrays: dict[str, Tensor], n_features: int, n_scores: int) -> str:
    """Validate arrays from an untrusted file, and return the text from which LightGBM makes a booster.

    ``arrays`` are those of :func:`read_trees`; a round has ``n_scores`` trees.
    """
    if type(n_features) is not int or not 1 <= n_features <= MAX_FEATURES:
        raise ValueError(f"n_features must be a whole number from 1 to {MAX_FEATURES:,}, got {n_features!r:.100}")
    if arrays.keys() != _ARRAYS.keys():
        raise ValueError(f"trees must have the arrays {', '.join(_ARRAYS)}; got {', '.join(arrays)[:200]}")
    values = {name: arrays[name].numpy() for name in _ARRAYS}
    if wrong := [name for name, dtype in _ARRAYS.items() if values[name].dtype != dtype or values[name].ndim != 1]:
        raise ValueError(f"{wrong[0]} of trees must be a vector of {_ARRAYS[wrong[0]].__name__}")
    n_leaves = values["num_leaves"]
    n_nodes = len(n_leaves) and int(n_leaves.astype(np.float64).sum()) - len(n_leaves)
    lengths = {**dict.fromkeys(_NODE, n_nodes), "leaf_value": n_nodes + len(n_leaves)}
    if len(n_leaves) % n_scores or (n_leaves < 1).any() or any(len(values[n]) != m for n, m in lengths.items()):
        raise ValueError(f"trees must have {n_scores} trees for each round, and numbers for all nodes and leaves")
    names = " ".join(f"Column_{number}" for number in range(n_features))
    head = f"tree\nversion=v4\nnum_class={n_scores}\nnum_tree_per_iteration={n_scores}\nlabel_index=0\n"
    head += f"max_feature_idx={n_features - 1}\nfeature_names={names}\nfeature_infos={'none ' * n_features}".rstrip()
    parts, ends = [head], n_leaves.cumsum()
    for number, (end, n) in enumerate(zip(ends.tolist(), n_leaves.tolist(), strict=True)):
        tree = {name: values[name][end - n - number : end - number - 1] for name in _NODE}
        _validate_tree(tree, number, n_features)
        tree["leaf_value"] = values["leaf_value"][end - n : end]
        lines = [f"{name}={' '.join(map(repr, part.tolist()))}" for name, part in tree.items()]
        parts.append(
            "\n".join([f"Tree={number}", f"num_leaves={n}", "num_cat=0", *lines, "is_linear=0", "shrinkage=1"])
        )
    return "\n\n".join(parts) + "\n\n\nend of trees\n"


def _validate_tree(tree: dict[str, np.ndarray], number: int, n_features: int) -> None:
    feature, left, right = tree["split_feature"], tree["left_child"], tree["right_child"]
    n = len(feature) + 1
    nodes, children = np.arange(n - 1), np.sort(np.concatenate([left, right]))
    # Every leaf, -n to -1, and every node but the first is the child of one earlier node.
    every_child = np.concatenate([np.arange(-n, 0), np.arange(1, n - 1)]) if n > 1 else children
    is_later = ((left < 0) | (left > nodes)) & ((right < 0) | (right > nodes))
    is_feature = (feature >= 0) & (feature < n_features)
    is_numeric = np.isin(tree["decision_type"], NUMERIC_DECISIONS)
    if not (np.array_equal(children, every_child) and is_later.all() and is_feature.all() and is_numeric.all()):
        raise ValueError(f"tree {number} has nodes without a valid feature, decision or child")
