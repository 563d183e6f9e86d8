"""A second model of bags: their labels from pooled columns, joined with what their members tell."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unbag._utils.findings import UnbagWarning
from unbag.aggregates import LabelProportions
from unbag.data.groups import Groups
from unbag.data.pooling import pool
from unbag.data.row_source import Rows
from unbag.families.choice import AUTO
from unbag.families.cross_fit import OutOfFold
from unbag.fitting import HOOKS, Prepared
from unbag.fold_fitting import CrossPrepared
from unbag.out_of_fold import fit_mixture
from unbag.predictor import Predictor, bag_log_probs
from unbag.training import Observations

BAG_FOLDS = 8
"""Of pooled columns: bags are few, and there is one row of each."""


def takes_pooled(clf: Predictor, rows: Rows, observations: Sequence[Observations]) -> bool:
    """Whether a second model may learn the labels of bags from their pooled columns."""
    automatic = isinstance(clf.model, str) and clf.model == AUTO
    of_table = isinstance(rows, Tensor) and rows.ndim == 2
    return automatic and of_table and len(observations) == 1 and observations[0].aggregate.pooled


def fit_bags(clf: Predictor, prepared: Prepared | CrossPrepared, bags: Observations, left_out: OutOfFold) -> None:
    """Learn the labels of bags from pooled columns, and what to make of that and of members by left-out bags.

    Parameters
    ----------
    clf
        What gets ``bag_model_`` and ``bag_weights_``; the model is one of its kind, with its parameters.
    prepared
        Rows, seed and time limit of the first model, which the second has as well.
    bags
        The bags that count.
    left_out
        What models that have not seen the bags say of their members.
    """
    weights, z = bags.weights.numpy(), bags.z.long()
    own: dict[str, Any] = {"aggregate": "label_proportions", "n_classes": 2, "random_state": prepared.seed}
    own |= {"devices": 1, "nodes": 1}  # one row for each bag: little to share out
    own["time_limit"] = prepared.time_limit
    own["n_folds"] = BAG_FOLDS if clf.n_folds == AUTO else clf.n_folds
    of_instances = dict.fromkeys(("classes", "class_shares", "sampling", "checkpoint", *HOOKS))
    model = type(clf)(**{**clf.get_params(deep=False), **of_instances, **own})
    assert isinstance(prepared.X, Tensor)
    columns = pool(prepared.X.cpu(), bags.groups)
    with warnings.catch_warnings():  # what is to be said of the observations is said already
        warnings.simplefilter("ignore", UnbagWarning)
        model.fit(columns.numpy(), z.numpy(), sample_weight=weights)
    one_hot = torch.nn.functional.one_hot(z, 2)
    labels = Observations(LabelProportions(), Groups.from_sizes([1] * len(z)), one_hot, 2, group_weights=weights)
    by_columns = model._out_of_fold_log_probs(model._log_probs_of_models(columns), [labels])
    clf.bag_model_ = model
    clf.bag_weights_ = fit_mixture([labels], [[bag_log_probs(bags, left_out.log_probs)], by_columns])
