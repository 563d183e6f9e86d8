"""Which family a model is of, by what the caller calls it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from unbag.families.trees import has_lightgbm

AUTO, TREES, MATCH, CLUSTERS = "auto", "trees", "mean_proportions", "clusters"
EXTRA_TREES, KERNEL = "extra_trees", "rbf"
CANDIDATES = ("linear", "mlp", MATCH, CLUSTERS, TREES, EXTRA_TREES, KERNEL)
"""The models among which ``model="auto"`` chooses: trees for tables alone; for counts alone a network that matches mean
predictions with proportions and, of few groups, one that begins with clusters of rows; for few labels of rows with many
columns extremely randomised trees and kernel logistic regression. Those of one architecture follow each other, because
they are saved together."""
FIRST = (CLUSTERS, "mlp")
"""Which of them are fitted first: one that cannot reach what others have is given up, which these rarely are."""
FROM_DISK = "mlp"
"""What ``model="auto"`` is for rows on disk."""


def in_order(candidates: Iterable[str]) -> list[str]:
    """Return candidates in the order in which they are fitted.

    Examples
    --------
    >>> in_order(["linear", "mlp", "trees"])
    ['mlp', 'linear', 'trees']
    """
    return sorted(candidates, key=lambda one: [*FIRST, one].index(one))


def architecture(candidate: str) -> str:
    """Return the name of the model that a candidate is.

    Examples
    --------
    >>> architecture("mean_proportions"), architecture("extra_trees"), architecture("linear")
    ('mlp', 'trees', 'linear')
    """
    return {MATCH: "mlp", CLUSTERS: "mlp", EXTRA_TREES: TREES}.get(candidate, candidate)


def is_network(model: Any) -> bool:
    """Whether a model is a network, by name or of the caller's own, rather than trees or one of scikit-learn.

    ``"auto"`` has networks among its candidates.

    Examples
    --------
    >>> is_network("mlp"), is_network("trees")
    (True, False)
    """
    return not isinstance(model, BaseEstimator) and not (isinstance(model, str) and model == TREES)


def check_processor(model: Any, device: str) -> None:
    """Refuse to run on another device what runs on the processor alone."""
    if not is_network(model) and torch.device(device).type != "cpu":
        raise ValueError(f"{name_of(model)} runs on the processor; leave device= out, got {device!r}")


def name_of(model: Any) -> str:
    """Return what to call a model that is no network."""
    return f"model={model!r}" if isinstance(model, str) else type(model).__name__


def takes_missing(model: Any) -> bool:
    """Whether a model reads rows with missing values as they are; ``"auto"`` leaves them to trees alone.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> takes_missing("mlp"), takes_missing("trees"), takes_missing(HistGradientBoostingClassifier())
    (False, True, True)
    """
    if isinstance(model, str):
        return model == TREES or (model == AUTO and has_lightgbm())
    return not is_network(model) and bool(get_tags(model).input_tags.allow_nan)
