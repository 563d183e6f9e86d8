"""Trees of LightGBM as arrays, which are validated before they become the text that LightGBM reads.

LightGBM does not validate its text: an index outside of an array makes it read memory of the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

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
