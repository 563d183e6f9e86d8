"""Groups as a fitted classifier scores them, by models that did not see their rows where there are such models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unbag.aggregates.base import Evidence
from unbag.data.row_source import Rows
from unbag.training import Observations

MEMBERS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class ScoredGroups:
    """A set of observations with the scores of its groups."""

    observations: Observations
    log_probs: Tensor  # (memberships, classes), before any observation is known
    folds: Tensor  # (memberships,), the fold whose models made the prediction; -1 for the models of all folds
    log_likelihood: Tensor  # (groups,)
    posterior: Tensor  # (memberships, classes)
    constant: Tensor  # (groups,), log-likelihood of the best constant prediction
    chosen: Tensor  # (chosen groups,), numbers of the groups that measures of quality use
    held_out: bool  # whether the chosen groups were held out; otherwise they are all groups


def predict_out_of_fold(clf: Any, rows: Rows, folds: Tensor, log_probs: Tensor) -> Tensor:
    """Return the log-probabilities of rows by models that did not see them.

    Parameters
    ----------
    clf
        A fitted classifier.
    rows, folds
        Rows, and the fold that held out each, -1 where none did.
    log_probs
        Log-probabilities by the models of all folds, for rows that no fold held out.
    """
    out_of_fold = log_probs.clone()
    for fold in range(clf.mixture_.n_folds):
        which = (folds == fold).nonzero().flatten()
        if len(which):
            out_of_fold[which] = clf._predict_rows(rows, which, fold)
    return out_of_fold


def find_held_out(observations: Observations, folds: Tensor) -> Tensor:
    """Return the numbers of the groups with a weight whose members were all held out."""
    groups = observations.groups
    seen = groups.segments.sum((folds[groups.members] < 0).long()) > 0
    return (~seen & (observations.weights > 0)).nonzero().flatten()


def score_groups(observations: Observations, log_probs: Tensor, folds: Tensor, constant: Tensor) -> ScoredGroups:
    """Compute the likelihood and the posterior of all groups of a set.

    Parameters
    ----------
    observations
        The set.
    log_probs, folds
        Log-probabilities of each row, and the fold whose models made them, -1 for the models of all folds.
    constant
        Log-likelihood of each group under the best constant prediction.
    """
    members, held_out = observations.groups.members, find_held_out(observations, folds)
    evidence = compute_evidence(observations, log_probs[members])
    return ScoredGroups(
        observations=observations,
        log_probs=log_probs[members],
        folds=folds[members],
        log_likelihood=evidence.log_likelihood,
        posterior=evidence.posterior,
        constant=constant,
        chosen=held_out if len(held_out) else observations.weights.nonzero().flatten(),
        held_out=len(held_out) > 0,
    )


def compute_evidence(observations: Observations, log_probs: Tensor) -> Evidence:
    """Compute the likelihood and posterior of groups from the log-probabilities of members, some groups at a time."""
    with torch.no_grad():
        parts = [
            observations.aggregate.checked_evidence(log_probs[entries], segments, observations.checked[which])
            for which, entries, segments in observations.groups.segments.runs(MEMBERS_AT_ONCE)
        ]
    return Evidence(*(torch.cat(values) for values in zip(*parts, strict=True)))
