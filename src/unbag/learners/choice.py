"""Kinds of models, by how the caller names them."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from unbag.learners.base import LEARNERS

TREES = "trees"


def is_network(model: Any) -> bool:
    """Return whether a model is a network, by name or a module, rather than trees or a classifier of scikit-learn.

    ``"auto"`` has networks among its candidates.

    Examples
    --------
    >>> is_network("mlp"), is_network("trees")
    (True, False)
    """
    return not isinstance(model, BaseEstimator) and not (isinstance(model, str) and model in (TREES, *LEARNERS))


def name_of(model: Any) -> str:
    """Return the name of a model for messages."""
    return f"model={model!r}" if isinstance(model, str) else type(model).__name__
