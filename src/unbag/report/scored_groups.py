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

    def share_of_seen_rows(self) -> float:
        """Return the share of members of held-out groups whose rows the predicting models saw in other groups."""
        members = self.observations.groups.members
        n_rows = int(members.max()) + 1
        low, high = (
            self.folds.new_empty(n_rows).scatter_reduce_(0, members, self.folds, how, include_self=False)
            for how in ("amin", "amax")
        )
        chosen = self.observations.groups.segments.take(self.chosen)[0]
        return (low != high)[members[chosen]].double().mean().item()


def find_held_out(observations: Observations, folds: Tensor) -> Tensor:
    """Return the numbers of the groups with a weight whose members are all predicted by models that did not see them.

    ``folds`` are those of memberships, -1 for the models of all folds.
    """
    n_seen = observations.groups.segments.sum((folds < 0).long())
    return ((n_seen == 0) & (observations.weights > 0)).nonzero().flatten()


def score_groups(clf: Any, rows: Rows, observations: Observations, folds: Tensor, constant: Tensor) -> ScoredGroups:
    """Score the groups of a set, each membership by the models of its fold, -1 for the models of all folds.

    ``constant`` is the log-likelihood of each group under the best constant prediction.
    """
    members = observations.groups.members
    of_members = torch.empty(len(members), len(clf.classes_), dtype=torch.float64)
    for fold in folds.unique().tolist():
        inside = folds == fold
        distinct, place = members[inside].unique(return_inverse=True)
        of_members[inside] = clf._predict_rows(rows, distinct, None if fold < 0 else fold)[place]
    held_out, evidence = find_held_out(observations, folds), compute_evidence(observations, of_members)
    chosen = held_out if len(held_out) else observations.weights.nonzero().flatten()
    return ScoredGroups(observations, of_members, folds, *evidence, constant, chosen, len(held_out) > 0)


def compute_evidence(observations: Observations, log_probs: Tensor) -> Evidence:
    """Compute likelihoods and posteriors from the log-probabilities of members, some groups at a time."""
    with torch.no_grad():
        parts = [
            observations.aggregate.checked_evidence(log_probs[entries], segments, observations.checked[which])
            for which, entries, segments in observations.groups.segments.runs(MEMBERS_AT_ONCE)
        ]
    return Evidence(*(torch.cat(values) for values in zip(*parts, strict=True)))
