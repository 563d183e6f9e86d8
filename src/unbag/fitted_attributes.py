"""What a fitted classifier keeps of its training: the models, how they are mixed, and how good they were."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unbag.data.row_source import gather_rows, some_of
from unbag.families import Fitted
from unbag.families.choice import architecture
from unbag.families.cross_fit import Align, CrossFitted
from unbag.fitting import Prepared
from unbag.out_of_fold import are_too_few, estimate_accuracy
from unbag.predictor import Predictor
from unbag.training import Observations
from unbag.training.excerpts import EXCERPT_NUMBERS
from unbag.training.trained import Trained, side_by_side

N_GUESSED = 2
"""Rows that count as guessed in the estimated accuracy of one split, whose few groups also chose when to stop. Of 22
fits of breast_cancer and vehicle, 20 were within 5 points of the truth; 19 without them, and 17 with four."""


def keep_split(
    clf: Predictor,
    fitted: Fitted,
    prepared: Prepared,
    observations: Sequence[Observations],
    align: Align,
    *,
    ensemble: bool,
) -> None:
    """Keep the model of one split of the groups, or all replicas of its scaling, and how good it is by held-out ones.

    Parameters
    ----------
    clf
        What gets the attributes.
    fitted, prepared
        What was trained, and from what.
    observations
        All sets.
    align
        Brings classes that observations leave unnamed into one order.
    ensemble
        Whether all replicas of the best one's scaling are kept.
    """
    trained, rows = fitted.trained, prepared.X
    clf.models_ = [trained.models[r] for r in (fitted.same_scaling_as_best if ensemble else [fitted.best])]
    clf.orders_ = [np.arange(observations[0].n_classes)] * len(clf.models_)
    clf.model_temperatures_, clf.temperature_ = [1.0] * len(clf.models_), 1.0
    if len(clf.models_) > 1:
        members = torch.cat([one.groups.members for one in observations]).unique()
        if not isinstance(rows, Tensor):
            members = some_of(members, EXCERPT_NUMBERS // math.prod(clf.input_shape_))
        first, *others = (one.exp() for one in clf._log_probs_of_models(gather_rows(rows, members)))
        clf.orders_[1:] = [align(first, other) for other in others]
    clf.model_names_ = [prepared.model if isinstance(prepared.model, str) else None] * len(clf.models_)
    clf.model_weights_ = [1 / len(clf.models_)] * len(clf.models_)
    clf.candidates_ = []
    clf.folds_, clf.model_folds_ = None, None
    _keep_history(clf, trained, fitted.best, fitted.scalings, fitted.scores)
    clf.held_out_ = prepared.held_out_groups
    clf.estimated_accuracy_ = None
    if prepared.held_out and not are_too_few(prepared.held_out):
        held_out = [one.to("cpu") for one in prepared.held_out]
        log_probs = [clf._mixed_log_probs(rows, one.groups.members) for one in held_out]
        clf.estimated_accuracy_ = estimate_accuracy(held_out, log_probs, N_GUESSED)


def keep_folds(clf: Predictor, fitted: CrossFitted, observations: Sequence[Observations]) -> None:
    """Keep the models of all folds; ``history_`` and what belongs to it are of the candidate with the largest weight.

    Parameters are those of :func:`keep_split`.
    """
    clf.models_, clf.orders_ = fitted.models, fitted.orders
    clf.model_names_ = [architecture(name) if isinstance(clf.model, str) else None for name in fitted.names]
    clf.model_weights_, clf.model_folds_ = fitted.weights, fitted.folds
    clf.model_temperatures_, clf.temperature_ = fitted.temperatures, fitted.temperature
    clf.estimated_accuracy_ = fitted.accuracy
    clf.candidates_ = fitted.candidates
    clf.folds_ = []
    for one, numbers in zip(observations, fitted.numbers, strict=True):
        of_all = torch.full((len(one.groups),), -1)  # a group of weight zero is in no fold
        of_all[one.weights.cpu() > 0] = numbers
        clf.folds_.append(of_all.tolist())
    clf.held_out_ = [[place for place, fold in enumerate(own) if fold >= 0] or None for own in clf.folds_]
    fits = fitted.fitted[max(fitted.candidates, key=lambda one: one["weight"])["model"]]
    trained = side_by_side([one.trained.take([one.best]) for one in fits])
    best = int(np.nanargmax([max(one.scores) for one in fits]))
    _keep_history(clf, trained, best, [one.scalings[one.best] for one in fits], [one.scores[one.best] for one in fits])


def _keep_history(
    clf: Predictor, trained: Trained, best: int, scalings: Sequence[str], scores: Sequence[float]
) -> None:
    clf.scaling_ = scalings[best]
    clf.history_ = trained.history
    clf.best_epoch_ = trained.best_epoch[best]
    clf.n_iter_ = len(trained.history)
    clf.replicas_ = [
        {"scaling": scaling, "best_epoch": epoch, "score": score}
        for scaling, epoch, score in zip(scalings, trained.best_epoch, scores, strict=True)
    ]
