"""Groups as the fitted classifier scores them, by models that did not see their rows where there are such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
    constant: Tensor  # (groups,), log-likelihood under the best constant prediction
    chosen: Tensor  # (chosen groups,), the numbers of the groups that measures of quality use
    held_out: bool
    """Whether the chosen groups are those that were held out; otherwise they are all groups."""


def predict_held_out(clf: Any, rows: Rows, folds: Tensor, log_probs: Tensor) -> Tensor:
    """Return the log-probabilities of rows by models that did not see them.

    Parameters
    ----------
    clf
        A fitted classifier.
    rows, folds
        Rows, and the fold that held out each, -1 where none did.
    log_probs
        Log-probabilities by the models of all folds, which are returned where no fold held out a row.
    """
    held_out = log_probs.clone()
    for fold in range(clf.mixture_.n_folds):
        which = (folds == fold).nonzero().flatten()
        if len(which):
            held_out[which] = clf._predict_rows(rows, which, fold)
    return held_out


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
        Log-probabilities of each row, and the fold that held it out, -1 where none did.
    constant
        Log-likelihood of each group under the best constant prediction.
    """
    members = observations.groups.members
    of_members, chosen = log_probs[members], find_held_out(observations, folds)
    log_likelihood, posterior = _evidence(observations, of_members)
    held_out = len(chosen) > 0
    if not held_out:
        chosen = observations.weights.nonzero().flatten()
    return ScoredGroups(
        observations, of_members, folds[members], log_likelihood, posterior, constant, chosen, held_out
    )


def compute_log_likelihood(observations: Observations, of_members: Tensor) -> Tensor:
    """Return the log-likelihood of each group from the log-probabilities of its members."""
    return _evidence(observations, of_members)[0]


def _evidence(observations: Observations, of_members: Tensor) -> tuple[Tensor, Tensor]:
    parts = []
    with torch.no_grad():
        for which, entries, segments in observations.groups.segments.runs(MEMBERS_AT_ONCE):
            parts.append(
                observations.aggregate.checked_evidence(of_members[entries], segments, observations.checked[which])
            )
    return torch.cat([p.log_likelihood for p in parts]), torch.cat([p.posterior for p in parts])


def mean_log_likelihood(sets: Sequence[Observations], values: Sequence[Tensor]) -> float:
    """Return the mean over groups of all sets, by their weights."""
    total = sum(s.weight for s in sets)
    return float(sum(s.weight * s.mean(v) for s, v in zip(sets, values, strict=True)) / total)
