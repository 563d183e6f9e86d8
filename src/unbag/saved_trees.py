"""Trees of saved classifiers, in LightGBM's own text format: checked line by line before LightGBM reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unbag.families import Trees
from unbag.families.trees import import_lightgbm

END = "end of trees\n"

_INNER = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_INNER_INFO = ("internal_value", "internal_weight", "internal_count")
_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_KEYS = ("Tree", "num_leaves", "num_cat", *_INNER, *_LEAF, *_INNER_INFO, "is_linear", "shrinkage")
_WHOLE = {"split_feature", "decision_type", "left_child", "right_child", "leaf_count", "internal_count"}
_INFO = re.compile(r"none|\[[-+.e0-9]+:[-+.e0-9]+\]")


def trees_as_bytes(models: Sequence[Trees]) -> bytes:
    """Return models in LightGBM's text format, one after the other; without what a model does not need to predict."""
    texts = (model.booster.model_to_string() for model in models)
    kept = (text[: text.index(END)] + END for text in texts)
    # LightGBM would go by these sizes without looking where that leads.
    return "".join(re.sub(r"^tree_sizes=.*\n", "", text, count=1, flags=re.MULTILINE) for text in kept).encode()


def read_trees(path: Path, content: bytes, n_models: int, n_features: int, n_classes: int) -> list[Trees]:
    """Return the models of a file, or say what is wrong with it.

    Parameters
    ----------
    path, content
        The file, and what it holds.
    n_models, n_features, n_classes
        How many there must be.
    """
    lightgbm = import_lightgbm()
    try:
        texts = content.decode("ascii").split(END)
        if len(texts) != n_models + 1 or texts[-1]:
            raise ValueError(f"it must hold {n_models} models, each with its end")
        for text in texts[:-1]:
            _check_model(text, n_features, 1 if n_classes == 2 else n_classes)
        return [Trees(lightgbm.Booster(model_str=text + END), n_classes) for text in texts[:-1]]
    except (ValueError, lightgbm.basic.LightGBMError) as error:
        message = ascii(str(error).partition("\n")[0][:200])[1:-1]
        raise ValueError(f"{path} holds no trees of this classifier: {message}; save the classifier again") from error


def _check_model(text: str, n_features: int, n_scores: int) -> None:
    """Refuse what LightGBM would read without looking: it trusts a text."""
    head, *trees = text.split("\n\nTree=")
    names = " ".join(f"Column_{place}" for place in range(n_features))
    expected = [
        *("tree", "version=v4", f"num_class={n_scores}", f"num_tree_per_iteration={n_scores}", "label_index=0"),
        *(f"max_feature_idx={n_features - 1}", f"feature_names={names}"),
    ]
    *first, infos = head.removesuffix("\n").split("\n")
    values = infos.removeprefix("feature_infos=").split(" ")
    if first != expected or len(values) != n_features or not all(map(_INFO.fullmatch, values)):
        raise ValueError(f"its first lines are not those of {n_features} features and {n_scores} trees a round")
    if not trees or len(trees) % n_scores:
        raise ValueError(f"it has {len(trees)} trees, {n_scores} a round")
    for number, tree in enumerate(trees):
        _check_tree(f"Tree={tree}".rstrip("\n").split("\n"), number, n_features)


def _check_tree(lines: list[str], number: int, n_features: int) -> None:
    pairs = [line.partition("=") for line in lines]
    if tuple(name for name, _, _ in pairs) != _KEYS:
        raise ValueError(f"tree {number} must have the lines {', '.join(_KEYS)}")
    given = {name: value for name, _, value in pairs}
    if (given["Tree"], given["num_cat"], given["is_linear"]) != (str(number), "0", "0"):
        raise ValueError(f"tree {number} is not a tree of numbers, in its place")
    arrays = {name: _numbers(name, given[name], number) for name in (*_KEYS[1:], "shrinkage")}
    n = int(arrays["num_leaves"][0]) if len(arrays["num_leaves"]) == 1 else 0
    lengths = {**dict.fromkeys((*_INNER, *_INNER_INFO), n - 1), **dict.fromkeys(_LEAF, n), "shrinkage": 1}
    # Of a single leaf LightGBM reads and writes the value alone.
    least = {"leaf_weight": 0, "leaf_count": 0} if n == 1 else {}
    for name, length in lengths.items():
        if n < 1 or not least.get(name, length) <= len(arrays[name]) <= length:
            raise ValueError(f"tree {number} has {len(arrays[name])} numbers for {name}, not {length}")
    features, decisions = arrays["split_feature"], arrays["decision_type"]
    left, right, places = arrays["left_child"], arrays["right_child"], np.arange(n - 1)
    children = np.sort(np.concatenate([left, right]))
    # Every leaf and every node but the first has one parent, and nodes come after theirs.
    every = np.concatenate([np.arange(-n, 0), np.arange(1, n - 1)]) if n > 1 else children
    later = ((left < 0) | (left > places)) & ((right < 0) | (right > places))
    inside = (features >= 0) & (features < n_features)
    usual = np.isin(decisions, (0, 2, 8, 10))  # of numbers: where missing ones go, if any were met
    if not (np.array_equal(children, every) and later.all() and inside.all() and usual.all()):
        raise ValueError(f"tree {number} has nodes that lead nowhere")


def _numbers(name: str, text: str, number: int) -> Any:
    characters = r"[-0-9 ]*" if name in _WHOLE else r"[-+.e0-9 ]*"
    if re.fullmatch(characters, text) is None:
        raise ValueError(f"tree {number} has something else than numbers for {name}")
    try:
        numbers = np.array(text.split(), dtype=np.float64)
    except ValueError:
        raise ValueError(f"tree {number} has something else than numbers for {name}") from None
    if not np.isfinite(numbers).all() or (name in _WHOLE and (np.abs(numbers) >= 2**31).any()):
        raise ValueError(f"tree {number} has numbers for {name} that are too large")
    return numbers
