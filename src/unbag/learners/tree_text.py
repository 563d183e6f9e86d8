"""Trees in the text format of LightGBM, validated line by line before LightGBM reads it.

LightGBM trusts its text: an index that points outside of an array makes it read memory that is not its own.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

END = "end of trees\n"
MAX_WHOLE = 2**31

_SPLIT = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_SPLIT_STATISTICS = ("internal_value", "internal_weight", "internal_count")
_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_KEYS = ("Tree", "num_leaves", "num_cat", *_SPLIT, *_LEAF, *_SPLIT_STATISTICS, "is_linear", "shrinkage")
_WHOLE = {"num_leaves", "split_feature", "decision_type", "left_child", "right_child", "leaf_count", "internal_count"}
_INFO = re.compile(r"none|\[[-+.e0-9]+:[-+.e0-9]+\]")
_NUMERIC_DECISIONS = (0, 2, 8, 10)
"""Comparisons of numbers, by where a missing value goes."""


def read_trees(booster: Any, n_rounds: int) -> str:
    """Return the trees of the first rounds of a booster as text, without what prediction does not need."""
    text = booster.model_to_string(num_iteration=n_rounds)
    # LightGBM would jump to these positions without looking where they lead.
    return re.sub(r"^tree_sizes=.*\n", "", text[: text.index(END)] + END, count=1, flags=re.MULTILINE)


def count_rounds(text: str, n_scores: int) -> int:
    """Validate that a text has the lines that :func:`read_trees` returns, with consistent numbers, and count rounds.

    Parameters
    ----------
    text
        Text that anybody may have written.
    n_scores
        Number of trees of a round.
    """
    body, end, rest = text.partition(END)
    head, *trees = body.split("\n\nTree=")
    *first, infos = head.removesuffix("\n").split("\n")
    ranges = infos.removeprefix("feature_infos=").split(" ")
    n_features = len(ranges)
    names = " ".join(f"Column_{number}" for number in range(n_features))
    expected = [
        *("tree", "version=v4", f"num_class={n_scores}", f"num_tree_per_iteration={n_scores}", "label_index=0"),
        *(f"max_feature_idx={n_features - 1}", f"feature_names={names}"),
    ]
    if not end or rest or first != expected or not all(map(_INFO.fullmatch, ranges)):
        raise ValueError(f"the first or last lines are not those of trees with {n_scores} scores")
    if len(trees) % n_scores:
        raise ValueError(f"each round must have {n_scores} trees, got {len(trees)} trees")
    for number, tree in enumerate(trees):
        _validate_tree(f"Tree={tree}".rstrip("\n").split("\n"), number, n_features)
    return len(trees) // n_scores


def _validate_tree(lines: list[str], number: int, n_features: int) -> None:
    pairs = [line.partition("=") for line in lines]
    if tuple(name for name, _, _ in pairs) != _KEYS:
        raise ValueError(f"tree {number} must have the lines {', '.join(_KEYS)}")
    values = {name: value for name, _, value in pairs}
    if (values["Tree"], values["num_cat"], values["is_linear"]) != (str(number), "0", "0"):
        raise ValueError(f"tree {number} must compare numbers, and have constant leaves")
    arrays = {name: _parse_numbers(name, values[name], number) for name in (*_KEYS[1:], "shrinkage")}
    n = int(arrays["num_leaves"][0]) if len(arrays["num_leaves"]) == 1 else 0
    lengths = {**dict.fromkeys((*_SPLIT, *_SPLIT_STATISTICS), n - 1), **dict.fromkeys(_LEAF, n), "shrinkage": 1}
    optional = {"leaf_weight", "leaf_count"} if n == 1 else set()  # LightGBM leaves them out of a single leaf
    for name, length in lengths.items():
        if n < 1 or (len(arrays[name]) != length and not (name in optional and len(arrays[name]) == 0)):
            raise ValueError(f"tree {number} must have {length} numbers for {name}, got {len(arrays[name])}")
    feature, left, right = arrays["split_feature"], arrays["left_child"], arrays["right_child"]
    nodes, children = np.arange(n - 1), np.sort(np.concatenate([left, right]))
    # Every leaf, -n to -1, and every node but the first is the child of one earlier node.
    every_child = np.concatenate([np.arange(-n, 0), np.arange(1, n - 1)]) if n > 1 else children
    is_later = ((left < 0) | (left > nodes)) & ((right < 0) | (right > nodes))
    is_feature = (feature >= 0) & (feature < n_features)
    is_numeric = np.isin(arrays["decision_type"], _NUMERIC_DECISIONS)
    if not (np.array_equal(children, every_child) and is_later.all() and is_feature.all() and is_numeric.all()):
        raise ValueError(f"tree {number} has nodes without a valid feature, decision or child")


def _parse_numbers(name: str, text: str, number: int) -> np.ndarray:
    # A threshold is infinite where only a missing value takes the other branch.
    characters = r"[-0-9 ]*" if name in _WHOLE else r"([-+.e0-9 ]|inf)*" if name == "threshold" else r"[-+.e0-9 ]*"
    try:
        numbers = np.array(text.split() if re.fullmatch(characters, text) else ["not a number"], dtype=np.float64)
    except ValueError:
        raise ValueError(f"tree {number} must have numbers for {name}") from None
    if (
        np.isnan(numbers).any()
        or (name != "threshold" and not np.isfinite(numbers).all())
        or (name in _WHOLE and (np.abs(numbers) >= MAX_WHOLE).any())
    ):
        raise ValueError(f"tree {number} has numbers for {name} that are too large")
    return numbers
