"""Extremely randomised trees of few labelled rows, as trees of LightGBM: saved, loaded and checked like these."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from torch import Tensor

from unbag.families.base import Fitted, judge
from unbag.families.rounds import constant_logits
from unbag.families.trees import Trees, as_table, import_lightgbm
from unbag.training import Observations

# How many trees, of which so many are grown between two looks at the clock.
N_TREES, STEP = 300, 50


@dataclass(frozen=True)
class ExtraTrees:
    """Trees with random thresholds, whose mean of shares in leaves gives the log-odds of class 1."""

    def fit(
        self,
        X: Tensor,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Grow all trees to their ends, or as many as there is time for."""
        (one,), begun = used, time.perf_counter()
        table = as_table(X[one.groups.members])
        # Of two classes the squared error is half of Gini's impurity, and one class alone is no special case.
        forest = ExtraTreesRegressor(max_features="sqrt", warm_start=True, random_state=seed)
        for n_trees in range(STEP, N_TREES + 1, STEP):
            forest.set_params(n_estimators=n_trees).fit(table, one.checked[:, 1].double().numpy(), one.weights.numpy())
            if time_limit is not None and time.perf_counter() - begun >= time_limit:
                break
        start = constant_logits(used)
        model = as_trees(forest, float(start[1] - start[0]))
        return judge([model], X, used, held_out, scaling="none", begun=begun)


def as_trees(forest: ExtraTreesRegressor, start: float) -> Trees:
    """Return the trees of a forest that tells shares of class 1 as trees of LightGBM that tell its log-odds.

    Shares in leaves are often 0 or 1, and have no log-odds: these are expanded to first order around the share of all
    rows, in which they remain a sum over trees. A temperature sets how sure that is.

    Parameters
    ----------
    forest
        Fitted.
    start
        The log-odds of all rows, which the first tree tells beside its own part.
    """
    share = 1 / (1 + math.exp(-start))
    factor = 1 / (share * (1 - share) * len(forest.estimators_))
    n = forest.n_features_in_
    head = [
        *("tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"),
        *(f"max_feature_idx={n - 1}", f"feature_names={' '.join(f'Column_{place}' for place in range(n))}"),
        *(f"feature_infos={' '.join(['none'] * n)}", "", ""),
    ]
    for number, one in enumerate(forest.estimators_):
        head += _tree_lines(one.tree_, number, (one.tree_.value[:, 0, 0] - share) * factor + start * (number == 0))
    return Trees(import_lightgbm().Booster(model_str="\n".join([*head, "end of trees", ""])), 2)


def _tree_lines(tree: Any, number: int, values: np.ndarray) -> list[str]:
    """Return the lines of a tree: nodes that split and leaves are numbered by themselves, leaves from -1 downwards."""
    is_leaf = tree.children_left < 0
    inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    places = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    weights, counts, nothing = tree.weighted_n_node_samples, tree.n_node_samples, np.zeros(len(inner), dtype=np.int64)
    columns = {
        "split_feature": tree.feature[inner],
        "split_gain": nothing,
        "threshold": tree.threshold[inner],
        "decision_type": nothing + 2,  # of numbers, none of them missing
        "left_child": places[tree.children_left[inner]],
        "right_child": places[tree.children_right[inner]],
        "leaf_value": values[leaves],
        "leaf_weight": weights[leaves],
        "leaf_count": counts[leaves],
        "internal_value": values[inner],
        "internal_weight": weights[inner],
        "internal_count": counts[inner],
    }
    lines = [f"{name}={' '.join(map(repr, own.tolist()))}" for name, own in columns.items()]
    return [f"Tree={number}", f"num_leaves={len(leaves)}", "num_cat=0", *lines, "is_linear=0", "shrinkage=1", "", ""]
