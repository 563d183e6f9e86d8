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
    """Return log-probabilities of rows by the models of the fold that held out each.

    A row that no fold held out, whose fold is -1, keeps its ``log_probs`` by the models of all folds.
    """
    out_of_fold = log_probs.clone()
    for fold in range(clf.mixture_.n_folds):
        which = (folds == fold).nonzero().flatten()
        if len(which):
            out_of_fold[which] = clf._predict_rows(rows, which, fold)
    return out_of_fold


def find_held_out(observations: Observations, folds: Tensor) -> Tensor:
    """Return the numbers of the groups with a weight whose members were all held out, from the fold of each row."""
    groups = observations.groups
    n_seen = groups.segments.sum((folds[groups.members] < 0).long())
    return ((n_seen == 0) & (observations.weights > 0)).nonzero().flatten()


def score_groups(observations: Observations, log_probs: Tensor, folds: Tensor, constant: Tensor) -> ScoredGroups:
    """Score the groups of a set from the log-probabilities of each row and the fold whose models made them."""
    members, held_out = observations.groups.members, find_held_out(observations, folds)
    chosen = held_out if len(held_out) else observations.weights.nonzero().flatten()
    of_members = log_probs[members]
    evidence = compute_evidence(observations, of_members)
    return ScoredGroups(observations, of_members, folds[members], *evidence, constant, chosen, len(held_out) > 0)


def compute_evidence(observations: Observations, log_probs: Tensor) -> Evidence:
    """Compute likelihoods and posteriors from the log-probabilities of members, some groups at a time."""
    with torch.no_grad():
        parts = [
            observations.aggregate.checked_evidence(log_probs[entries], segments, observations.checked[which])
            for which, entries, segments in observations.groups.segments.runs(MEMBERS_AT_ONCE)
        ]
    return Evidence(*(torch.cat(values) for values in zip(*parts, strict=True)))
